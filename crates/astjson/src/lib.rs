//! JSON text as a flat tree of nodes: parse once, merge trees, print once.
