"""Who answers requests: one file each, all behind `base.Client`."""
