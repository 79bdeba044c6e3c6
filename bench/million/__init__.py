"""What each cost becomes as the number of letters grows, up to a million."""
