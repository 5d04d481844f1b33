//! A generator of random supergraphs that composition could have produced: each subgraph with a type can identify its
//! objects or reach them, required and provided fields are external, and interfaces are implemented in all subgraphs
//! that know them. Key members are external in some subgraphs, some of which are type extensions of Federation 1; if
//! that leaves no route to a field, the router must refuse it.

mod abstracts;
mod generator;
mod model;
mod print;
mod wide;

pub use wide::generate_wide_federation;

use generator::FederationGenerator;

use crate::Random;

/// Returns the SDL of a random supergraph with `subgraphs` (2 to 8) subgraphs.
pub fn generate_federation(random: &mut Random, subgraphs: usize) -> String {
    let mut federation = FederationGenerator::new(random, subgraphs);
    federation.add_values();
    federation.add_entities();
    federation.add_external_key_members();
    federation.add_names();
    federation.add_interface_object();
    federation.add_abstracts();
    federation.add_fields();
    federation.add_requires();
    federation.add_provides();
    federation.add_contexts();
    federation.add_roots();
    federation.print()
}
