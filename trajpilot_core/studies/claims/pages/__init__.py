"""The pages of the claims: tables and charts of the evidence, rendered by `report`."""
