//! The four subgraphs of the federation benchmark in one process.

fn main() {}
