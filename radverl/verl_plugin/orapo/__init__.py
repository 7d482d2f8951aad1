"""OraPO in verl: settings, the row of the true report, row order, weights, loss, trainers. See trainer.py."""
