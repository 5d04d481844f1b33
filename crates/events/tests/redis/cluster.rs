//! The Redis provider against a real cluster of three nodes.

use std::path::Path;
use std::process::{Command, Stdio};

use events::{Message, Position, Provider, Redis, RedisSettings, SourceMessage, Start};
use redis::aio::MultiplexedConnection;

use test_kit::programs::REDIS_SERVER;
use test_kit::redis::RedisServer;

use super::streams::{expect_numbers, open};
use super::{PATIENCE, eventually, foreign_client, next, settings, subscribe, tell};

/// Keys with slots at the first, second and third node.
const KEYS: [&str; 3] = ["{3}orders", "{1}orders", "{0}orders"];

/// A cluster of three masters, each with a third of the slots, and `replicas` in all for the first.
struct Cluster {
    nodes: Vec<RedisServer>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts the nodes; `None` if Redis is not installed.
    async fn start(replicas: usize) -> Option<Self> {
        let program = REDIS_SERVER.locate_or_skip()?;
        let folder = tempfile::tempdir().expect("a folder");
        let nodes: Vec<_> = (0..3 + replicas).map(|_| start_node(folder.path())).collect();
        let mut command = Command::new(program.with_file_name("redis-cli"));
        command.args(["--cluster", "create"]);
        command.args(nodes[..3].iter().map(|node| format!("127.0.0.1:{}", node.port())));
        let made = command.arg("--cluster-yes").stdin(Stdio::null()).output().expect("redis-cli");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        let mut first = foreign_client(&nodes[0]).await;
        let id: String = tell(&mut first, &["CLUSTER", "MYID"]).await;
        for replica in &nodes[3..] {
            let mut client = foreign_client(replica).await;
            let port = nodes[0].port().to_string();
            let _: String = tell(&mut client, &["CLUSTER", "MEET", "127.0.0.1", &port]).await;
            eventually("it knows the master", async || {
                let nodes: String = tell(&mut client, &["CLUSTER", "NODES"]).await;
                nodes.contains(&id)
            })
            .await;
            let _: String = tell(&mut client, &["CLUSTER", "REPLICATE", &id]).await;
            eventually("it follows", async || {
                let info: String = tell(&mut client, &["INFO", "replication"]).await;
                info.contains("master_link_status:up")
            })
            .await;
        }
        for node in &nodes {
            let mut client = foreign_client(node).await;
            eventually("all know all", async || {
                let info: String = tell(&mut client, &["CLUSTER", "INFO"]).await;
                let known = format!("cluster_known_nodes:{}", nodes.len());
                info.contains("cluster_state:ok") && info.contains(&known)
            })
            .await;
        }
        Some(Self { nodes, _folder: folder })
    }

    /// Returns a provider that is configured with one node and discovers the others.
    fn provider(&self) -> Redis {
        let seed = self.nodes[1].url();
        Redis::start(RedisSettings { cluster: true, ..settings(&seed) }).expect("settings")
    }
}

fn start_node(folder: &Path) -> RedisServer {
    let own = tempfile::Builder::new().tempdir_in(folder).expect("a folder").keep();
    let dir = own.to_str().expect("a plain path");
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
        ["--dir", dir],
    ];
    RedisServer::start(arguments.as_flattened()).expect("it is installed")
}

async fn publish(provider: &Redis, key: &str, number: u64) {
    let message = Message { durable: true, ..Message::new(key, number.to_string()) };
    provider.publish(message).await.expect("published");
}

/// Returns the node that has a key.
async fn owner(cluster: &Cluster, key: &str) -> usize {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let mut client = foreign_client(node).await;
        let length = redis::cmd("XLEN").arg(key).query_async::<u64>(&mut client).await;
        if length.is_ok() {
            return index;
        }
    }
    panic!("no node has {key}");
}

#[tokio::test]
async fn streams_at_several_nodes_are_one_subscription_and_continue_at_its_position() {
    let Some(cluster) = Cluster::start(0).await else { return };
    let mut owners = Vec::new();
    for key in KEYS {
        owners.push(owner(&cluster, key).await);
    }
    assert_eq!(owners, [0, 1, 2], "one key at each node");
    let provider = cluster.provider();
    let mut stream = open(&provider, &KEYS, Start::New).await;
    let mut position = Position::default();
    for (number, key) in (0..).zip(KEYS.iter().cycle()).take(300) {
        publish(&provider, key, number).await;
    }
    let mut numbers = [Vec::new(), Vec::new(), Vec::new()];
    while numbers.iter().map(Vec::len).sum::<usize>() < 300 {
        let message = tokio::time::timeout(PATIENCE, stream.messages.recv()).await;
        let Ok(Some(SourceMessage::Event(event))) = message else { panic!("{message:?}") };
        let number: u64 = std::str::from_utf8(&event.payload).unwrap().parse().expect("a number");
        let partition_offset = event.partition_offset.expect("an offset");
        assert!(position.advance(partition_offset));
        numbers[partition_offset.partition as usize].push(number);
    }
    // Partitions are numbered in the order of keys.
    for (partition, first) in [(0, 2), (1, 1), (2, 0)] {
        assert_eq!(numbers[partition], (0..100).map(|it| first + 3 * it).collect::<Vec<_>>());
    }

    publish(&provider, KEYS[2], 300).await;
    publish(&provider, KEYS[0], 301).await;
    let other = cluster.provider();
    let mut resumed = open(&other, &KEYS, Start::After(position)).await;
    let mut payloads = Vec::new();
    let mut passed = 0;
    while payloads.len() < 2 {
        match tokio::time::timeout(PATIENCE, resumed.messages.recv()).await {
            Ok(Some(SourceMessage::Event(event))) => payloads.push(event.payload.clone()),
            Ok(Some(SourceMessage::Progress(_))) if payloads.is_empty() => passed += 1,
            other => panic!("{other:?}"),
        }
    }
    payloads.sort();
    assert_eq!((passed, payloads), (3, vec!["300".into(), "301".into()]));

    let mut last = open(&other, &KEYS, Start::Last).await;
    let mut events = Vec::new();
    for _ in 0..6 {
        let message = tokio::time::timeout(PATIENCE, last.messages.recv()).await;
        if let Ok(Some(SourceMessage::Event(event))) = message {
            events.push(event.payload.clone());
        } else if events.len() == 1 {
            break;
        }
    }
    assert_eq!(events, ["301"], "the latest of all nodes");
}

#[tokio::test]
async fn a_master_that_fails_is_followed_to_its_replica_without_a_loss() {
    let Some(mut cluster) = Cluster::start(1).await else { return };
    let provider = cluster.provider();
    let key = KEYS[0];
    let mut stream = open(&provider, &[key], Start::New).await;
    for number in 0..1000 {
        publish(&provider, key, number).await;
    }
    assert_eq!(expect_numbers(&mut stream, 0, 499).await, 0);
    let mut replica = foreign_client(&cluster.nodes[3]).await;
    let mut master = foreign_client(&cluster.nodes[0]).await;
    let acknowledged: u64 = tell(&mut master, &["WAIT", "1", "0"]).await;
    assert_eq!(acknowledged, 1, "the replica has everything");
    drop(master);
    drop(cluster.nodes.remove(0));
    eventually("the replica takes over", async || {
        let role: String = tell(&mut replica, &["INFO", "replication"]).await;
        role.contains("role:master")
    })
    .await;
    eventually("publishing goes on", async || {
        let message = Message { durable: true, ..Message::new(key, "1000") };
        provider.publish(message).await.is_ok()
    })
    .await;
    for number in 1001..2000 {
        publish(&provider, key, number).await;
    }
    assert_eq!(expect_numbers(&mut stream, 500, 1999).await, 0);
}

/// Moves the slot of `key`, with the key, from one node to another.
async fn migrate_slot(cluster: &Cluster, key: &str, from: usize, to: usize) {
    let mut source = foreign_client(&cluster.nodes[from]).await;
    let mut target = foreign_client(&cluster.nodes[to]).await;
    let id = async |client: &mut MultiplexedConnection| -> String {
        tell(client, &["CLUSTER", "MYID"]).await
    };
    let (from_id, to_id) = (id(&mut source).await, id(&mut target).await);
    let slot: u64 = tell(&mut source, &["CLUSTER", "KEYSLOT", key]).await;
    let slot = slot.to_string();
    let _: String = tell(&mut target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]).await;
    let _: String = tell(&mut source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]).await;
    let port = cluster.nodes[to].port().to_string();
    let _: String = tell(&mut source, &["MIGRATE", "127.0.0.1", &port, key, "0", "10000"]).await;
    for client in [&mut target, &mut source] {
        let _: String = tell(client, &["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]).await;
    }
}

#[tokio::test]
async fn a_slot_that_moves_is_followed_without_a_loss() {
    let Some(cluster) = Cluster::start(0).await else { return };
    let provider = cluster.provider();
    let key = KEYS[1];
    let mut stream = open(&provider, &[key], Start::New).await;
    let publishing = async {
        for number in 0..3000 {
            publish(&provider, key, number).await;
        }
    };
    let moving = async {
        migrate_slot(&cluster, key, 1, 2).await;
        migrate_slot(&cluster, key, 2, 0).await;
    };
    let reading = expect_numbers(&mut stream, 0, 2999);
    let (_, _, gaps) = tokio::join!(publishing, moving, reading);
    assert_eq!(gaps, 0);
    assert_eq!(owner(&cluster, key).await, 0);
}

#[tokio::test]
async fn channels_reach_all_nodes_of_a_cluster() {
    let Some(cluster) = Cluster::start(0).await else { return };
    let provider = cluster.provider();
    let mut stream = subscribe(&provider, &["orders.*"]).await;
    for (index, node) in cluster.nodes.iter().enumerate() {
        let mut client = foreign_client(node).await;
        let _: u64 = tell(&mut client, &["PUBLISH", "orders.7", &index.to_string()]).await;
        assert_eq!(next(&mut stream).await, format!("orders.7 {index}"));
    }
    provider.publish(Message::new("orders.8", "own")).await.expect("published");
    assert_eq!(next(&mut stream).await, "orders.8 own");
}

#[tokio::test]
async fn more_slots_than_the_limit_are_refused_until_others_are_free() {
    let Some(cluster) = Cluster::start(0).await else { return };
    let provider = cluster.provider();
    let mut streams = Vec::new();
    let mut refused = None;
    for number in 0..100 {
        let wanted = super::streams::wanted(&[&format!("orders.{number}")], Start::New);
        match provider.subscribe(wanted.clone()).await {
            Ok(stream) => streams.push(stream),
            Err(error) => {
                refused = Some((wanted, error.to_string()));
                break;
            }
        }
    }
    let (wanted, reason) = refused.expect("a bound");
    assert!(reason.contains("{orders}.7"), "{reason}");
    assert!(streams.len() >= 50, "{}", streams.len());
    streams.clear();
    eventually("there is room again", async || provider.subscribe(wanted.clone()).await.is_ok())
        .await;
}

#[tokio::test]
async fn sharded_channels_go_through_the_node_that_has_their_slot_and_follow_it() {
    let Some(cluster) = Cluster::start(0).await else { return };
    let seed = cluster.nodes[1].url();
    let sharded = RedisSettings { cluster: true, sharded: true, ..settings(&seed) };
    let provider = Redis::start(sharded).expect("settings");
    let mut stream = subscribe(&provider, &KEYS).await;
    for (index, key) in KEYS.iter().enumerate() {
        let mut client = foreign_client(&cluster.nodes[index]).await;
        let (_, count): (String, u64) = tell(&mut client, &["PUBSUB", "SHARDNUMSUB", key]).await;
        assert_eq!(count, 1, "{key}");
        let heard: u64 = tell(&mut client, &["SPUBLISH", key, &index.to_string()]).await;
        assert_eq!(heard, 1);
        assert_eq!(next(&mut stream).await, format!("{key} {index}"));
        provider.publish(Message::new(*key, "own")).await.expect("published");
        assert_eq!(next(&mut stream).await, format!("{key} own"));
    }
    let error =
        provider.subscribe(events::StreamRequest::new(vec!["a*".into()])).await.unwrap_err();
    assert!(matches!(error, events::SourceError::InvalidTopic { .. }), "{error}");

    migrate_slot(&cluster, KEYS[1], 1, 2).await;
    assert_eq!(next(&mut stream).await, "gap");
    let mut client = foreign_client(&cluster.nodes[2]).await;
    eventually("it listens at the other node", async || {
        let (_, count): (String, u64) =
            tell(&mut client, &["PUBSUB", "SHARDNUMSUB", KEYS[1]]).await;
        count == 1
    })
    .await;
    provider.publish(Message::new(KEYS[1], "moved")).await.expect("published");
    let mut heard = next(&mut stream).await;
    if heard == "gap" {
        // The node that lost the slot was left with all of its channels.
        heard = next(&mut stream).await;
    }
    assert_eq!(heard, format!("{} moved", KEYS[1]));
}
