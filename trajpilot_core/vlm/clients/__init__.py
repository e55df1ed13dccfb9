"""Who answers requests, all behind `registry.Client`."""
