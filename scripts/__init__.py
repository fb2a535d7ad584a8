"""Small tools for those who build hicache-tune."""
