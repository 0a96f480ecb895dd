"""What the demo measures, the same way for every transport."""
