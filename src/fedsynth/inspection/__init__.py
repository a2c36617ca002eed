"""Looking at data that nobody may look at: generative models of chosen rows, and what differs between them."""
