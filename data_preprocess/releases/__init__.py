"""What is special to each data set: its tables, file layout and quirks. What they share is in `core`."""
