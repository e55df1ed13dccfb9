"""What leaves a finished run: tables and predictions as files for other programs, a window as a recording for rerun."""
