"""The gallery: sampled windows with their plans, frames and head paths."""
