//! How to feed and read a network: the model card.
