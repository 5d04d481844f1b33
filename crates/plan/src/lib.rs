//! A normalised operation becomes a plan of subgraph fetches and the shape of the answer.
