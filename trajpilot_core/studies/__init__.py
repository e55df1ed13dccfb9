"""What no stage needs: claims, planners in worlds, the paper's tables and their audit, accuracy of poses."""
