//! Several real `redis-server`s that work together: a cluster, and a master with a replica and a sentinel.

use crate::children::ChildProcess;
use crate::eventually;
use crate::programs;
use crate::redis::{RedisServer, ask};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A cluster of three masters, each with a third of the slots.
pub struct RedisCluster {
    /// The nodes, in the order of their slots.
    pub nodes: Vec<RedisServer>,
    _folder: TempDir,
}

impl RedisCluster {
    /// Starts the nodes, and waits until all know all; `None` if Redis is not installed.
    ///
    /// # Panics
    /// See [`RedisServer::start`]; or the nodes do not form a cluster.
    pub fn start() -> Option<Self> {
        let program = programs::REDIS_SERVER.locate_or_skip()?;
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let nodes: Vec<_> = (0..3).map(|_| start_node(folder.path())).collect::<Option<_>>()?;
        let mut command = Command::new(program.with_file_name("redis-cli"));
        command.args(["--cluster", "create"]);
        command.args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())));
        let made = command.arg("--cluster-yes").stdin(Stdio::null()).output();
        let made = made.unwrap_or_else(|error| panic!("redis-cli: {error}"));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stdout));
        for node in &nodes {
            eventually("all nodes of the cluster to know each other", || {
                let info = ask(node.port(), &["CLUSTER", "INFO"]);
                let is_complete = info.contains("cluster_state:ok")
                    && info.contains("cluster_known_nodes:3")
                    && info.contains("cluster_slots_ok:16384");
                is_complete.then_some(())
            });
        }
        Some(Self { nodes, _folder: folder })
    }

    /// Moves the slot of `key`, with its keys, from one node to another.
    ///
    /// # Panics
    /// A node refuses.
    pub fn move_slot(&self, key: &str, from: usize, to: usize) {
        let (source, target) = (self.nodes[from].port(), self.nodes[to].port());
        let id = |port| ask(port, &["CLUSTER", "MYID"]);
        let (source_id, target_id) = (id(source), id(target));
        let slot = ask(source, &["CLUSTER", "KEYSLOT", key]);
        ask(target, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        ask(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        let port = target.to_string();
        for moved in ask(source, &["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]).lines() {
            ask(source, &["MIGRATE", "127.0.0.1", &port, moved, "0", "10000"]);
        }
        for node in [target, source] {
            ask(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }
}

fn start_node(folder: &Path) -> Option<RedisServer> {
    let own = tempfile::Builder::new().tempdir_in(folder);
    let own = own.unwrap_or_else(|error| panic!("no folder: {error}")).keep();
    let dir = own.display().to_string();
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-node-timeout", "1000"],
        ["--cluster-require-full-coverage", "no"],
        ["--dir", &dir],
    ];
    RedisServer::start(arguments.as_flattened())
}

/// A sentinel that alone watches a master with one replica. The name of the master is `mymaster`.
pub struct RedisSentinel {
    master: Option<RedisServer>,
    replica: RedisServer,
    port: u16,
    _process: ChildProcess,
    _folder: TempDir,
}

impl RedisSentinel {
    /// Starts master, replica and sentinel, and waits until the sentinel knows both; `None` if Redis is not installed.
    ///
    /// # Panics
    /// See [`RedisServer::start`].
    pub fn start() -> Option<Self> {
        let program = programs::REDIS_SERVER.locate_or_skip()?;
        let master = RedisServer::start(&[])?;
        let master_port = master.port().to_string();
        let replica = RedisServer::start(&["--replicaof", "127.0.0.1", &master_port])?;
        eventually("the replica to follow", || {
            let info = ask(replica.port(), &["INFO", "replication"]);
            info.contains("master_link_status:up").then_some(())
        });
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
        let port = crate::free_address().unwrap_or_else(|error| panic!("no port: {error}")).port();
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\n\
             sentinel monitor mymaster 127.0.0.1 {master_port} 1\n\
             sentinel down-after-milliseconds mymaster 500\n\
             sentinel failover-timeout mymaster 5000\n"
        );
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("no file: {error}"));
        let process = ChildProcess::start(Command::new(program).arg(&file).arg("--sentinel"));
        eventually("the sentinel to know the replica", || {
            let replicas = ask(port, &["SENTINEL", "REPLICAS", "mymaster"]);
            replicas.contains(&format!("127.0.0.1:{}", replica.port())).then_some(())
        });
        Some(Self { master: Some(master), replica, port, _process: process, _folder: folder })
    }

    /// Returns the sentinel's URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Kills the master, and waits until the replica has taken over.
    ///
    /// # Panics
    /// The replica does not take over.
    pub fn fail_over(&mut self) {
        let Some(master) = self.master.take() else { return };
        master.kill();
        eventually("the replica to take over", || {
            let info = ask(self.replica.port(), &["INFO", "replication"]);
            info.contains("role:master").then_some(())
        });
    }
}
