"""Pictures of what the stages committed, one file each: bytes of an SVG that shows in any browser. No Prefect."""
