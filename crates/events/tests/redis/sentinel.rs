//! The Redis provider with a real sentinel, a master and a replica.

use std::path::Path;
use std::process::Command;

use events::{Message, Provider, Redis, RedisSentinel, RedisSettings, Start};
use redis::aio::MultiplexedConnection;

use test_kit::ChildProcess;
use test_kit::programs::REDIS_SERVER;
use test_kit::redis::RedisServer;

use super::streams::{expect_numbers, open};
use super::{eventually, foreign_client, free_port, next, settings, subscribe, tell};

struct Sentinel {
    _process: ChildProcess,
    port: u16,
}

impl Sentinel {
    /// Starts a sentinel that alone watches the master at that port.
    async fn start(program: &Path, folder: &Path, master: u16) -> Self {
        let port = free_port();
        let file = folder.join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\n\
             sentinel monitor mymaster 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds mymaster 500\n\
             sentinel failover-timeout mymaster 5000\n"
        );
        std::fs::write(&file, text).expect("written");
        let process = ChildProcess::start(Command::new(program).arg(&file).arg("--sentinel"));
        let sentinel = Self { _process: process, port };
        let mut client = None;
        eventually("it responds", async || {
            client = sentinel.client().await;
            client.is_some()
        })
        .await;
        let mut client = client.expect("it responds");
        eventually("it knows the replica", async || {
            let replicas: Vec<redis::Value> =
                tell(&mut client, &["SENTINEL", "REPLICAS", "mymaster"]).await;
            replicas.len() == 1
        })
        .await;
        sentinel
    }

    async fn client(&self) -> Option<MultiplexedConnection> {
        let client =
            redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("a URL");
        client.get_multiplexed_async_connection().await.ok()
    }
}

#[tokio::test]
async fn after_a_failover_streams_have_lost_nothing_and_channels_announce_a_gap() {
    let Some(program) = REDIS_SERVER.locate_or_skip() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let master = RedisServer::start(&[]).expect("it is installed");
    let port = master.port().to_string();
    let replica =
        RedisServer::start(&["--replicaof", "127.0.0.1", &port]).expect("it is installed");
    let mut client = foreign_client(&replica).await;
    eventually("it follows", async || {
        let info: String = tell(&mut client, &["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
    let sentinel = Sentinel::start(&program, folder.path(), master.port()).await;
    let watched = RedisSentinel { master: "mymaster".into(), authentication: None };
    let urls = vec![
        format!("redis://127.0.0.1:{}", free_port()),
        format!("redis://127.0.0.1:{}", sentinel.port),
    ];
    let provider =
        Redis::start(RedisSettings { sentinel: Some(watched), urls, ..settings("") }).expect("it");
    let mut stream = open(&provider, &["a"], Start::New).await;
    let mut channel = subscribe(&provider, &["c"]).await;
    let publish = async |number: u64| {
        let message = Message { durable: true, ..Message::new("a", number.to_string()) };
        provider.publish(message).await
    };
    for number in 0..1000 {
        publish(number).await.expect("published");
    }
    assert_eq!(expect_numbers(&mut stream, 0, 499).await, 0);
    let mut old = foreign_client(&master).await;
    let acknowledged: u64 = tell(&mut old, &["WAIT", "1", "0"]).await;
    assert_eq!(acknowledged, 1, "the replica has everything");
    drop((old, master));
    assert_eq!(next(&mut channel).await, "gap");
    eventually("publishing goes on at the new master", async || publish(1000).await.is_ok()).await;
    for number in 1001..2000 {
        publish(number).await.expect("published");
    }
    assert_eq!(expect_numbers(&mut stream, 500, 1999).await, 0);
    eventually("subscribed again", async || provider.is_connected()).await;
    // The failover has closed all of its connections.
    let mut client = foreign_client(&replica).await;
    let _: u64 = tell(&mut client, &["PUBLISH", "c", "after"]).await;
    assert_eq!(next(&mut channel).await, "c after");

    let unknown = RedisSentinel { master: "nobody".into(), authentication: None };
    let urls = vec![format!("redis://127.0.0.1:{}", sentinel.port)];
    let nobody =
        Redis::start(RedisSettings { sentinel: Some(unknown), urls, ..settings("") }).expect("it");
    let reason = nobody.wait_connected().await.unwrap_err();
    assert_eq!(reason, "the sentinels know no master of that name");
}
