"""Visual odometry of one clip with OpenCV."""
