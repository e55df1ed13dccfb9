"""The trained models: alignment, predictor, scorer."""
