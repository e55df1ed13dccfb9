"""Where, when and with which recipe the flows run; the command line."""
