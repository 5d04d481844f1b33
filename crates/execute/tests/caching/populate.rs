//! Entities that mutations return are stored, as requests for them would be.

use std::sync::Arc;

use astjson::Document;
use bytes::Bytes;
use cache::{EntityKey, Invalidation};
use execute::{
    ChangedEntity, ChangedKey, ChangedKeyField, Executable, FetchError, PopulatedEntry,
    PopulatedMember, SubgraphResponse,
};
use graph::SubgraphId;
use http::StatusCode;
use plan::{Fetch, FetchKind, OperationKind, Plan, SubgraphOperation, VariableId, Variables};

use crate::kit::notation;
use crate::run;
use crate::values_subgraph::{NOW, TTL, Values, value_of};
use crate::world::{Client, World};

/// The mutation `set(id:)`, which changes an entity and returns it.
fn mutation() -> Executable {
    let operation = SubgraphOperation {
        text: "mutation($id:Int!){set(id:$id){value k0:id}}".into(),
        kind: OperationKind::Mutation,
        name: None,
        variables: vec![("id".into(), VariableId(0))],
    };
    let fetch = Fetch {
        subgraph: SubgraphId(1),
        kind: FetchKind::Root { operation, data_keys: vec!["set".into()] },
        depends_on: Vec::new(),
        any_of: Vec::new(),
        representations_max: 1_000,
    };
    let plan = Plan {
        kind: OperationKind::Mutation,
        fetches: vec![fetch],
        subscription: None,
        shape: notation::shape("Mutation { set: Item { value: String } }"),
    };
    let field = |name: &str, response_key: &str| ChangedKeyField {
        name: name.into(),
        response_key: response_key.into(),
        fields: Vec::new(),
    };
    let member = PopulatedMember { response_key: "value".into(), is_conditional: false };
    let changed = ChangedEntity {
        data_key: "set".into(),
        keys: vec![ChangedKey { type_name: "Item".into(), fields: vec![field("id", "k0")] }],
        populated: vec![PopulatedEntry { members: vec![member], ..PopulatedEntry::default() }],
    };
    Executable::new(Arc::new(plan)).with_changed_entities(vec![vec![changed]])
}

/// The id in the body of a mutation.
pub(crate) fn id_of(body: &Bytes) -> u64 {
    let mut document = Document::new();
    let root = document.parse(body.clone()).unwrap();
    let id = document.get_path(root, &["variables", "id"].map(astjson::PathSegment::Key));
    document.raw(id.unwrap()).parse().unwrap()
}

impl Values {
    /// Executes the mutation.
    pub(crate) async fn mutate(
        &self,
        id: u64,
        user: String,
        language: String,
    ) -> Result<SubgraphResponse, FetchError> {
        *self.versions.lock().unwrap().entry(id).or_default() += 1;
        let text = value_of(id, &user, &language, self.version(id));
        let is_broken = self.broken.lock().unwrap().contains(&id);
        let again = match self.changed_again.lock().unwrap().contains(&id) {
            true => (
                r#","other":true"#,
                format!(r#",{{"kind":"entity","type":"Item","key":{{"id":{id}}}}}"#),
            ),
            false => ("", String::new()),
        };
        let (other, entity) = again;
        let body = match is_broken {
            true => format!(
                r#"{{"data":{{"set":{{"value":null,"k0":{id}}}}},
                    "errors":[{{"message":"broken","path":["set","value"]}}],
                    "extensions":{{"invalidation":[{{"kind":"cache_tag","cache_tag":"roots"}}]}}}}"#
            ),
            false => format!(
                r#"{{"data":{{"set":{{"value":{text:?},"k0":{id}}}{other}}},
                    "extensions":{{"invalidation":[{{"kind":"cache_tag","cache_tag":"roots"}}{entity}]}}}}"#
            ),
        };
        let headers = self.headers_for(&[id]);
        tokio::task::yield_now().await;
        let during = self.during_mutation.lock().unwrap().take();
        if let Some(during) = during {
            during();
        }
        Ok(SubgraphResponse {
            status: StatusCode::OK,
            headers,
            body: body.into(),
            policy: None,
            hedge: None,
        })
    }
}

impl World {
    /// Executes the mutation for a client, and lets tasks in the background proceed.
    pub(crate) async fn mutate(&self, client: Client, id: u64) {
        let variables = Variables { values: vec![Some(id.to_string().into())] };
        self.execute(self.context(client, false), &mutation(), &variables).await;
        self.settle().await;
    }

    async fn settle(&self) {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    /// Returns true if a request was sent for the entity, and checks the value that the client gets.
    async fn is_requested(&self, client: Client, id: u64) -> bool {
        let before = self.requests();
        let version = self.values.version(id);
        let expected = value_of(id, &client.user(), &client.language(), version);
        let got = self.ask(client, &[id]).await[&id].clone();
        if !self.values.broken.lock().unwrap().contains(&id) {
            assert_eq!(got, Some(expected));
        }
        self.requests() > before
    }

    fn follow(&self) {
        self.shared.as_ref().unwrap().follow();
    }
}

const ALICE: Client = Client { user: 0, language: 0 };
const BOB: Client = Client { user: 1, language: 1 };

#[test]
fn a_request_after_the_mutation_finds_the_new_value() {
    let world = World::new();
    run(async {
        assert!(world.is_requested(BOB, 1).await);
        world.mutate(ALICE, 1).await;
        assert!(!world.is_requested(BOB, 1).await, "it is public");
        assert!(!world.is_requested(ALICE, 1).await);
        world.invalidate(1);
        assert!(world.is_requested(BOB, 1).await);
        NOW.set(NOW.get() + TTL / 2);
        world.mutate(ALICE, 1).await;
        NOW.set(NOW.get() + TTL - 1);
        assert!(!world.is_requested(BOB, 1).await);
        NOW.set(NOW.get() + 1);
        assert!(world.is_requested(BOB, 1).await, "its time is over");
    });
}

#[test]
fn a_private_value_is_stored_for_its_client() {
    let world = World::new();
    run(async {
        world.mutate(ALICE, 3).await;
        assert!(world.is_requested(BOB, 3).await);
        assert!(!world.is_requested(ALICE, 3).await);
        // The subgraph names a header in `vary` of which keys do not have the value yet.
        world.mutate(ALICE, 2).await;
        assert!(world.is_requested(ALICE, 2).await);
        world.mutate(ALICE, 2).await;
        assert!(world.is_requested(BOB, 2).await, "another language");
        assert!(!world.is_requested(ALICE, 2).await);
    });
}

#[test]
fn nothing_is_stored_of_a_field_with_an_error_or_against_the_will_of_the_subgraph() {
    let world = World::new();
    run(async {
        world.values.broken.lock().unwrap().insert(1);
        world.mutate(ALICE, 1).await;
        world.values.broken.lock().unwrap().clear();
        assert!(world.is_requested(ALICE, 1).await);
        *world.values.forbids_storing.lock().unwrap() = true;
        world.mutate(ALICE, 1).await;
        assert!(world.is_requested(ALICE, 1).await, "the old value is stale all the same");
    });
}

#[test]
fn nothing_is_stored_of_an_entity_that_a_later_field_of_the_mutation_has_changed() {
    let world = World::new();
    run(async {
        world.values.changed_again.lock().unwrap().insert(1);
        world.mutate(ALICE, 1).await;
        assert!(world.is_requested(ALICE, 1).await);
        world.mutate(ALICE, 5).await;
        assert!(!world.is_requested(ALICE, 5).await, "another entity");
    });
}

#[test]
fn an_invalidation_between_request_and_response_keeps_the_value_out() {
    let world = Arc::new(World::new());
    run(async {
        for (id, is_kept) in [(1, false), (5, true)] {
            let generation = Arc::clone(&world.generation);
            let during = move || {
                let key = EntityKey::from_json(r#"{"id":1}"#).unwrap();
                let entity = Invalidation::Entity { type_name: "Item".into(), key };
                generation.caches.as_ref().unwrap().invalidate(&[entity]);
            };
            *world.values.during_mutation.lock().unwrap() = Some(Box::new(during));
            world.mutate(ALICE, id).await;
            assert_eq!(!world.is_requested(ALICE, id).await, is_kept, "{id}");
        }
    });
}

#[test]
fn a_request_that_was_in_flight_does_not_replace_the_new_value() {
    let world = World::new();
    run(async {
        // The request is sent first, and its response comes after that of the mutation.
        let ((), values) = tokio::join!(world.mutate(ALICE, 1), world.ask(BOB, &[1]));
        assert!(values[&1].is_some());
        assert!(!world.is_requested(BOB, 1).await);
    });
}

#[test]
fn another_router_finds_the_value_unless_one_was_invalidated_meanwhile() {
    let routers = World::sharing(2);
    run(async {
        // One that was fetched makes the second router look for shared entries.
        assert!(routers[1].is_requested(BOB, 1).await);
        routers[0].mutate(ALICE, 1).await;
        for router in &routers {
            router.follow();
        }
        routers[0].settle().await;
        assert!(!routers[1].is_requested(BOB, 1).await);
        routers[0].invalidate(1);
        routers[1].follow();
        assert!(routers[1].is_requested(BOB, 1).await);

        let generation = Arc::clone(&routers[1].generation);
        let during = move || {
            let key = EntityKey::from_json(r#"{"id":5}"#).unwrap();
            let entity = Invalidation::Entity { type_name: "Item".into(), key };
            generation.caches.as_ref().unwrap().invalidate(&[entity]);
        };
        *routers[0].values.during_mutation.lock().unwrap() = Some(Box::new(during));
        routers[0].mutate(ALICE, 5).await;
        assert!(!routers[0].is_requested(BOB, 5).await, "it has not heard of it");
        for router in &routers {
            router.follow();
        }
        routers[0].settle().await;
        assert!(routers[1].is_requested(BOB, 5).await);
        assert!(!routers[0].is_requested(BOB, 5).await, "the other router has fetched it");
    });
}
