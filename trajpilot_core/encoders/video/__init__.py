"""Video encoders: V-JEPA."""
