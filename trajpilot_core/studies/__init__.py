"""What no stage needs: claims, the audit of the paper's tables, pose robustness."""
