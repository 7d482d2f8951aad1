"""radverl: clinical rewards and OraPO for training chest X-ray report writers with unmodified verl.

Research only, not for clinical use.
"""

__version__ = "0.1.0"
