"""What our users' projects do with radverl; a failing test here is a break in the public interface."""
