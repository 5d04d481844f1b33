//! A generator of random federations, as subgraphs and as the supergraph that composition produces from them: each subgraph with a type can identify its
//! objects or reach them, required and provided fields are external, and interfaces are implemented in all subgraphs
//! that know them. Key members are external in some subgraphs, some of which are type extensions of Federation 1; if
//! that leaves no route to a field, the router must refuse it.

mod abstracts;
mod generator;
mod model;
mod print;
mod subgraph_sdl;
mod wide;

pub use wide::generate_wide_federation;

use generator::FederationGenerator;

use crate::Random;

/// The texts of a random federation.
#[derive(Clone, Debug)]
pub struct GeneratedFederation {
    /// The name and the SDL of each subgraph.
    pub subgraphs: Vec<(String, String)>,
    /// The supergraph, as the generator expects it. It also has what no route leads to, which composition refuses.
    pub supergraph: String,
}

impl GeneratedFederation {
    /// Returns the texts of all subgraphs, for messages.
    pub fn subgraphs_text(&self) -> String {
        let texts = self.subgraphs.iter().map(|(name, sdl)| format!("# {name}\n{sdl}\n"));
        texts.collect()
    }

    /// Returns the federation with one more subgraph, which no operation needs. The supergraph stays as it is.
    #[must_use]
    pub fn with_unused_subgraph(&self) -> Self {
        let sdl = "extend schema @link(url: \"https://specs.apollo.dev/federation/v2.8\", import: [\"@key\"])\n\
            type Query { unused: Unused }\ntype Unused @key(fields: \"id\") { id: ID! unused: Int }\n";
        let mut larger = self.clone();
        larger.subgraphs.push(("unused".to_owned(), sdl.to_owned()));
        larger
    }

    fn of(federation: &FederationGenerator<'_>) -> Self {
        Self { subgraphs: federation.print_subgraphs(), supergraph: federation.print() }
    }
}

/// Returns a random federation of `subgraphs` (2 to 8) subgraphs.
pub fn generate_federation(random: &mut Random, subgraphs: usize) -> GeneratedFederation {
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
    GeneratedFederation::of(&federation)
}
