//! The store against real `redis-server`s: single, as a cluster, behind a sentinel, over TLS; killed, hanging, empty,
//! full.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use net::TlsClient;
use redis::aio::MultiplexedConnection;
use redis_store::{
    Command, RedisAuthentication, Reply, Script, Store, StoreError, StoreSentinel, StoreSettings,
};
use test_kit::redis::RedisServer;
use test_kit::redis_groups::{RedisCluster, RedisSentinel};

/// The maximum time of one step, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time limit of commands: long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(2);

/// Keys with slots at the first, second and third node of a cluster, with the namespace `t:`.
const TAGGED: [&str; 3] = ["{3}a", "{1}a", "{0}a"];

static ADD: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('INCRBY', KEYS[1], ARGV[1])"));

fn settings(url: &str) -> StoreSettings {
    StoreSettings {
        namespace: "t:".into(),
        timeout: LIMIT,
        retry_initial: Duration::from_millis(10),
        retry_max: Duration::from_millis(100),
        ..StoreSettings::new("shared", vec![url.into()])
    }
}

async fn connected(settings: StoreSettings) -> Store {
    let store = Store::start(settings).expect("settings");
    eventually("connected", async || store.is_connected()).await;
    store
}

/// Repeats a check until it holds, for changes in other processes that cannot be waited for.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

async fn foreign_client(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("the server is there")
}

/// Sends one command to the server as another client.
async fn tell<T: redis::FromRedisValue>(client: &mut MultiplexedConnection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(client).await.expect("the server responds")
}

fn get(key: &str) -> Command {
    Command::new("GET").key(key)
}

fn set(key: &str, value: &str) -> Command {
    Command::new("SET").key(key).value(value)
}

fn add(key: &str, number: u64) -> Command {
    Command::script(&ADD, [key]).number(number)
}

fn bytes(text: &str) -> Result<Reply, StoreError> {
    Ok(Reply::Bytes(text.into()))
}

async fn works(store: &Store) -> bool {
    store.run_one(set("probe", "x")).await == bytes("OK")
}

#[tokio::test]
async fn replies_have_the_order_of_commands_and_every_key_has_the_namespace() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    let replies = store.run(vec![
        set("a", "1"),
        get("b"),
        Command::new("LPUSH").key("list").value("x"),
        get("list"),
        get("a"),
        Command::new("MGET").key("a").key("b"),
        add("a", 41),
    ]);
    let list = Reply::List(vec![Reply::Bytes("1".into()), Reply::Nil]);
    assert_eq!(
        replies.await,
        [
            bytes("OK"),
            Ok(Reply::Nil),
            Ok(Reply::Integer(1)),
            Err(StoreError::Refused("WRONGTYPE".into())),
            bytes("1"),
            Ok(list),
            Ok(Reply::Integer(42)),
        ]
    );
    let mut client = foreign_client(&server.url()).await;
    let mut keys: Vec<String> = tell(&mut client, &["KEYS", "*"]).await;
    keys.sort();
    assert_eq!(keys, ["t:a", "t:list"]);
}

#[tokio::test]
async fn a_script_is_sent_as_text_only_to_a_server_that_does_not_know_it() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    for total in 1..=3 {
        assert_eq!(store.run_one(add("n", 1)).await, Ok(Reply::Integer(total)));
    }
    let mut client = foreign_client(&server.url()).await;
    let calls = async |client: &mut MultiplexedConnection| {
        let text: String = tell(client, &["INFO", "commandstats"]).await;
        let count = |name: &str| {
            let line = text.lines().find(|it| it.starts_with(&format!("cmdstat_{name}:")));
            let calls = line.and_then(|it| it.split(['=', ',']).nth(1)?.parse::<u64>().ok());
            calls.unwrap_or(0)
        };
        (count("eval"), count("evalsha"))
    };
    assert_eq!(calls(&mut client).await, (1, 3));
    let _: String = tell(&mut client, &["SCRIPT", "FLUSH"]).await;
    assert_eq!(store.run_one(add("n", 1)).await, Ok(Reply::Integer(4)));
    assert_eq!(calls(&mut client).await, (2, 4));
}

#[tokio::test]
async fn a_database_of_the_url_is_selected() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&format!("{}/3", server.url()))).await;
    assert_eq!(store.run_one(set("a", "1")).await, bytes("OK"));
    let mut client = foreign_client(&format!("{}/3", server.url())).await;
    assert_eq!(tell::<u64>(&mut client, &["DBSIZE"]).await, 1);
}

#[test]
fn all_single_threaded_runtimes_share_one_connection() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let control = tokio::runtime::Runtime::new().expect("a runtime");
    let store = Arc::new(control.block_on(connected(settings(&server.url()))));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
                runtime.expect("a runtime").block_on(async {
                    for _ in 0..500 {
                        let reply = store.run_one(add("n", 1)).await;
                        assert!(matches!(reply, Ok(Reply::Integer(_))), "{reply:?}");
                    }
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|it| it.join().expect("no panic"));
    control.block_on(async {
        assert_eq!(store.run_one(get("n")).await, bytes("2000"));
        let mut client = foreign_client(&server.url()).await;
        let clients: String = tell(&mut client, &["CLIENT", "LIST"]).await;
        // This client, and the store.
        assert_eq!(clients.lines().count(), 2, "{clients}");
    });
}

#[tokio::test]
async fn an_absent_server_is_an_error_at_once_and_is_found_when_it_comes() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    assert_eq!(store.run_one(add("n", 1)).await, Ok(Reply::Integer(1)));
    let port = server.kill();
    eventually("the loss is noticed", async || !store.is_connected()).await;
    let began = Instant::now();
    for _ in 0..1000 {
        let error = store.run_one(add("n", 1)).await.expect_err("it is away");
        assert!(matches!(error, StoreError::Disconnected(_)) && !error.is_late(), "{error}");
    }
    assert!(began.elapsed() < LIMIT * 10, "a thousand failures took {:?}", began.elapsed());
    let _server = RedisServer::restart_on(port, &[]).expect("it is installed");
    eventually("it works again", async || works(&store).await).await;
    // The server is empty, and knows no script.
    assert_eq!(store.run_one(add("n", 1)).await, Ok(Reply::Integer(1)));
}

#[tokio::test]
async fn a_hanging_server_costs_a_few_commands_their_time_limit_and_recovers() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    assert!(works(&store).await);
    server.signal("STOP");
    let (mut timeouts, began) = (0, Instant::now());
    loop {
        match store.run_one(get("a")).await {
            Err(StoreError::Timeout(limit)) => {
                assert_eq!(limit, LIMIT);
                timeouts += 1;
            }
            Err(StoreError::Disconnected(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!((1..=5).contains(&timeouts), "{timeouts} timeouts");
    assert!(began.elapsed() < LIMIT * 20, "{:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..1000 {
        let reply = store.run_one(get("a")).await;
        assert!(matches!(reply, Err(StoreError::Disconnected(_))), "{reply:?}");
    }
    assert!(began.elapsed() < LIMIT * 10, "a thousand failures took {:?}", began.elapsed());
    server.signal("CONT");
    eventually("it works again", async || works(&store).await).await;
}

#[tokio::test]
async fn a_server_that_was_late_is_used_again_without_another_connection() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let limit = Duration::from_millis(500);
    let store = connected(StoreSettings { timeout: limit, ..settings(&server.url()) }).await;
    server.signal("STOP");
    let replies = futures_util::future::join_all((0..6).map(|_| store.run_one(get("a")))).await;
    assert!(replies.iter().all(Result::is_err), "{replies:?}");
    assert!(!store.is_connected());
    let error = store.run_one(get("a")).await.expect_err("it is late");
    assert!(error.is_late(), "{error}");
    server.signal("CONT");
    eventually("it works again", async || works(&store).await).await;
    assert_eq!(telemetry::read(&store.stats().connected), 1);
}

#[tokio::test]
async fn a_late_reply_is_passed_on() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let limit = Duration::from_millis(500);
    let store = connected(StoreSettings { timeout: limit, ..settings(&server.url()) }).await;
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let run = |number: u64| {
        let sender = sender.clone();
        // The test may have ended.
        let on_late = move |reply: &Reply| drop(sender.send(reply.clone()));
        store.run_one_or_late(add("n", number), on_late)
    };
    assert_eq!(run(1).await, Ok(Reply::Integer(1)));
    server.signal("STOP");
    assert_eq!(run(2).await, Err(StoreError::Timeout(limit)));
    server.signal("CONT");
    let late = tokio::time::timeout(PATIENCE, receiver.recv()).await;
    assert_eq!(late.expect("it comes"), Some(Reply::Integer(3)));
}

#[tokio::test]
async fn a_full_server_refuses_writes_and_is_read_as_before() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    assert_eq!(store.run_one(set("a", "1")).await, bytes("OK"));
    let mut client = foreign_client(&server.url()).await;
    let _: String = tell(&mut client, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await;
    let _: String = tell(&mut client, &["CONFIG", "SET", "maxmemory", "1"]).await;
    for _ in 0..20 {
        let refused = Err(StoreError::Refused("OOM".into()));
        assert_eq!(store.run(vec![set("b", "2"), get("a")]).await, [refused, bytes("1")]);
    }
    let _: String = tell(&mut client, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert!(works(&store).await);
}

#[tokio::test]
async fn commands_in_flight_are_bounded() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(StoreSettings { in_flight_max: 3, ..settings(&server.url()) }).await;
    server.signal("STOP");
    let run = |count: usize| store.run((0..count).map(|_| get("a")).collect());
    let (first, second, third) = tokio::join!(run(2), run(2), run(1));
    server.signal("CONT");
    assert_eq!(second, vec![Err(StoreError::Overloaded); 2]);
    for reply in first.iter().chain(&third) {
        assert_eq!(*reply, Err(StoreError::Timeout(LIMIT)));
    }
    eventually("the room is free again", async || run(3).await == vec![Ok(Reply::Nil); 3]).await;
}

#[tokio::test]
async fn a_blocking_connection_waits_without_delaying_others_and_notices_the_end() {
    let Some(server) = RedisServer::start(&[]) else { return };
    let store = connected(settings(&server.url())).await;
    let mut blocking = store.open_blocking("stream").await.expect("a connection");
    let read = |wait: u64| {
        let command = Command::new("XREAD").value("BLOCK").number(wait);
        command.value("STREAMS").key("stream").value("0-0")
    };
    assert_eq!(blocking.run(&read(1), PATIENCE).await, Ok(Reply::Nil));
    let add = Command::new("XADD").key("stream").value("7-0").value("name").value("value");
    let wait = u64::try_from(PATIENCE.as_millis()).expect("a minute");
    let waiting = read(wait);
    let (found, added) = tokio::join!(blocking.run(&waiting, 2 * PATIENCE), store.run_one(add));
    assert_eq!(added, bytes("7-0"));
    let text = |text: &str| Reply::Bytes(text.into());
    let message = Reply::List(vec![text("7-0"), Reply::List(vec![text("name"), text("value")])]);
    assert_eq!(found, Ok(Reply::List(vec![text("t:stream"), Reply::List(vec![message])])));
    let refused = blocking.run(&Command::new("INCR").key("stream"), PATIENCE).await;
    assert_eq!(refused, Err(StoreError::Refused("WRONGTYPE".into())));
    server.signal("STOP");
    let late = blocking.run(&get("a"), LIMIT).await;
    assert_eq!(late, Err(StoreError::Timeout(LIMIT)));
    server.signal("CONT");
    drop(server);
    eventually("the end is noticed", async || {
        matches!(blocking.run(&get("a"), LIMIT).await, Err(StoreError::Disconnected(_)))
    })
    .await;
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    let Some(server) = RedisServer::start(&["--requirepass", "s3cret"]) else { return };
    let ours = RedisAuthentication { user: None, password: "s3cret".into() };
    let store =
        connected(StoreSettings { authentication: Some(ours), ..settings(&server.url()) }).await;
    assert!(works(&store).await);
    for password in ["wrong-s3cret", ""] {
        let theirs = RedisAuthentication { user: None, password: password.into() };
        let given = (!password.is_empty()).then_some(theirs);
        let store = StoreSettings { authentication: given, ..settings(&server.url()) };
        let store = Store::start(store).expect("settings");
        let mut reason = String::new();
        eventually("it is refused", async || {
            reason = store.run_one(get("a")).await.expect_err("refused").to_string();
            !reason.contains("not connected yet")
        })
        .await;
        assert!(reason.contains("password") && !reason.contains("s3cret"), "{reason}");
    }
}

#[tokio::test]
async fn an_encrypted_connection_is_only_made_to_a_server_that_is_trusted() {
    let certificates = test_kit::certificates();
    let file = |name: &str| certificates.join(name).to_str().expect("a plain path").to_owned();
    let port = test_kit::free_address().expect("a port").port().to_string();
    let (certificate, key, authority) =
        (file("localhost.pem"), file("localhost.key"), file("ca.pem"));
    let arguments = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &authority],
        ["--tls-auth-clients", "no"],
    ];
    let Some(_server) = RedisServer::start(arguments.as_flattened()) else { return };
    let url = format!("rediss://localhost:{port}");
    let tls = TlsClient::with_roots(&std::fs::read(&authority).expect("readable"), &[]);
    let trusting = StoreSettings { tls: Some(tls.expect("an authority")), ..settings(&url) };
    assert!(works(&connected(trusting).await).await);
    let distrusting = Store::start(settings(&url)).expect("settings");
    let mut reason = String::new();
    eventually("it is refused", async || {
        reason = distrusting.run_one(get("a")).await.expect_err("refused").to_string();
        reason.contains("TLS")
    })
    .await;
}

#[tokio::test]
async fn one_run_reaches_all_nodes_of_a_cluster_and_a_lost_node_costs_only_its_keys() {
    let Some(mut cluster) = RedisCluster::start() else { return };
    let url = cluster.nodes[1].url();
    let store = connected(StoreSettings { is_cluster: true, ..settings(&url) }).await;
    let sets = TAGGED.map(|key| set(key, key)).to_vec();
    assert_eq!(store.run(sets).await, vec![bytes("OK"); 3]);
    let scripts = TAGGED.map(|key| add(&format!("{key}-number"), 7)).to_vec();
    assert_eq!(store.run(scripts).await, vec![Ok(Reply::Integer(7)); 3]);
    for node in &cluster.nodes {
        let mut client = foreign_client(&node.url()).await;
        assert_eq!(tell::<u64>(&mut client, &["DBSIZE"]).await, 2, "each node has its keys");
    }
    let both = Command::new("MGET").key(TAGGED[0]).key(TAGGED[1]);
    assert_eq!(store.run_one(both).await, Err(StoreError::DifferentSlots));

    drop(cluster.nodes.remove(0));
    let gets = || TAGGED.map(get).to_vec();
    let mut replies = Vec::new();
    eventually("the loss is noticed", async || {
        replies = store.run(gets()).await;
        replies[0].is_err()
    })
    .await;
    assert_eq!(replies[1..], [bytes(TAGGED[1]), bytes(TAGGED[2])]);
}

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    let Some(cluster) = RedisCluster::start() else { return };
    let url = cluster.nodes[0].url();
    let store = connected(StoreSettings { is_cluster: true, ..settings(&url) }).await;
    let key = TAGGED[1];
    let namespaced = format!("t:{key}");
    let counting = async {
        let mut total = 0;
        for _ in 0..3000 {
            if store.run_one(add(key, 1)).await.is_ok() {
                total += 1;
            }
        }
        total
    };
    let moving = tokio::task::spawn_blocking(move || {
        cluster.move_slot(&namespaced, 1, 2);
        cluster.move_slot(&namespaced, 2, 0);
        cluster
    });
    let (total, cluster) = tokio::join!(counting, moving);
    let _cluster = cluster.expect("no panic");
    assert!(total >= 2900, "only {total} of 3000 commands were executed");
    let reply = store.run_one(get(key)).await;
    let Ok(Reply::Bytes(counted)) = reply else { panic!("{reply:?}") };
    let counted: u64 = String::from_utf8(counted).expect("a text").parse().expect("a number");
    // A command that failed may have been executed.
    assert!((total..=3000).contains(&counted), "{counted} for {total}");
}

#[tokio::test]
async fn after_a_failover_the_sentinels_name_the_new_master() {
    let Some(mut sentinel) = RedisSentinel::start() else { return };
    let watched = StoreSentinel { master: "mymaster".into(), authentication: None };
    let settings = StoreSettings { sentinel: Some(watched), ..settings(&sentinel.url()) };
    let store = connected(settings).await;
    assert!(works(&store).await);
    let _sentinel = tokio::task::spawn_blocking(move || {
        sentinel.fail_over();
        sentinel
    })
    .await
    .expect("no panic");
    eventually("the new master is in use", async || works(&store).await).await;
}
