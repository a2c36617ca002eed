"""Systems that papers compare with and that are no federated training: statistics first, then a model of them."""
