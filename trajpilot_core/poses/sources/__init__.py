"""Where poses come from: pose files, Pi3, or visual odometry."""
