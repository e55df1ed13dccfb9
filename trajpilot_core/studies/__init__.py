"""What no stage needs: the paper's tables, and the accuracy of pose sources."""
