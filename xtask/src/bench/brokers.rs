//! The brokers that events come from: a server of each kind, beside the load generator, and what the router has to know
//! of it. Where the server can be asked, also who is connected to it.

use super::machine::{Serving, free_address};
use super::{Bench, kafka};
use crate::{Failure, programs};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a broker may take to answer a question.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// What the load generator calls itself at brokers.
const GENERATOR: &str = "bench";

/// What we call ourselves there.
const WATCHER: &str = "watcher";

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    Memory,
    Nats,
    Redis,
    Kafka,
}

impl Provider {
    pub(super) const ALL: [Self; 4] = [Self::Memory, Self::Nats, Self::Redis, Self::Kafka];

    /// Its name on the command line, which is also the kind in the router's configuration.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Nats => "nats",
            Self::Redis => "redis",
            Self::Kafka => "kafka",
        }
    }

    /// Its name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Nats => "NATS",
            Self::Redis => "Redis",
            Self::Kafka => "Kafka",
        }
    }

    /// By its name on the command line.
    pub(super) fn parse(text: &str) -> Result<Self, Failure> {
        Self::ALL.into_iter().find(|it| it.key() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::key).join(", ");
            format!("no provider is called `{text}`; there are: {names}")
        })
    }
}

/// A connection to a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// Subjects or channels; nothing where the broker does not tell.
    pub(super) subscriptions: Option<u64>,
}

/// A broker that runs, or the router's own memory.
pub(super) struct Broker {
    pub(super) provider: Provider,
    server: Option<Serving>,
    /// Where NATS answers questions.
    monitor: Option<SocketAddr>,
}

impl Broker {
    /// Starts a fresh server.
    pub(super) fn start(bench: &Bench, provider: Provider) -> Result<Self, Failure> {
        let (server, monitor) = match provider {
            Provider::Memory => (None, None),
            Provider::Nats => {
                let monitor = free_address()?;
                let server = nats(bench, &["--http_port", &monitor.port().to_string()])?;
                (Some(server), Some(monitor))
            }
            Provider::Redis => {
                let program = programs::find("redis-server")?;
                let server = bench.start_beside("redis-server", &program, |address| {
                    let port = address.port().to_string();
                    // Nothing is kept.
                    ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]
                        .map(str::to_owned)
                        .into()
                })?;
                (Some(server), None)
            }
            Provider::Kafka => (Some(kafka::start(bench)?), None),
        };
        Ok(Self { provider, server, monitor })
    }

    fn address(&self) -> String {
        self.server.as_ref().map(|server| server.address.to_string()).unwrap_or_default()
    }

    /// What the router's configuration has to say of it.
    pub(super) fn config(&self) -> String {
        let address = self.address();
        match self.provider {
            // Always there.
            Provider::Memory => String::new(),
            Provider::Nats => {
                format!(
                    "events: {{providers: {{nats: [{{id: default, url: \"nats://{address}\"}}]}}}}\n"
                )
            }
            Provider::Redis => {
                format!(
                    "events: {{providers: {{redis: [{{id: default, urls: [\"redis://{address}\"]}}]}}}}\n"
                )
            }
            Provider::Kafka => {
                format!(
                    "events: {{providers: {{kafka: [{{id: default, brokers: [\"{address}\"]}}]}}}}\n"
                )
            }
        }
    }

    /// What `providerId` calls it.
    pub(super) fn id(&self) -> String {
        format!("{}/default", self.provider.key())
    }

    /// Where the load generator publishes, for a router.
    pub(super) fn destination(&self, router: &Serving, topic: &str) -> Result<String, Failure> {
        let address = match self.provider {
            Provider::Memory => router.admin.ok_or("the router has no admin listener")?.to_string(),
            _ => self.address(),
        };
        Ok(format!("{}://{address}/{topic}", self.provider.key()))
    }

    /// The connections of a router, if there are any.
    pub(super) fn connections(&self, router: &Serving) -> Result<Option<Vec<Held>>, Failure> {
        match self.provider {
            Provider::Memory => Ok(None),
            Provider::Kafka => {
                let port = self.server.as_ref().map_or(0, |server| server.address.port());
                let count = connections_to(router.pid(), port);
                Ok(Some(vec![Held { subscriptions: None }; count]))
            }
            Provider::Nats => {
                let answer = self.monitored("/connz")?;
                let list = answer["connections"].as_array().cloned().unwrap_or_default();
                let others = list.iter().filter(|it| it["name"] != GENERATOR);
                let held = others.map(|it| Held { subscriptions: it["subscriptions"].as_u64() });
                Ok(Some(held.collect()))
            }
            Provider::Redis => {
                let list = redis(
                    &self.address(),
                    &[&["CLIENT", "SETNAME", WATCHER], &["CLIENT", "LIST"]],
                )?;
                Ok(Some(redis_connections(&list)))
            }
        }
    }

    /// How many subscriptions the broker has taken in and given up since it began, if it counts them.
    pub(super) fn subscriptions(&self) -> Result<Option<(u64, u64)>, Failure> {
        if self.provider != Provider::Nats {
            return Ok(None);
        }
        let answer = self.monitored("/subsz")?;
        Ok(answer["num_inserts"].as_u64().zip(answer["num_removes"].as_u64()))
    }

    fn monitored(&self, path: &str) -> Result<Value, Failure> {
        let address = self.monitor.ok_or("this broker is not monitored")?;
        let text =
            asked(address, &format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n"), |_| false)?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        serde_json::from_str(body).map_err(|error| format!("NATS at {path}: {error}"))
    }
}

/// A NATS server, with further words.
pub(super) fn nats(bench: &Bench, more: &[&str]) -> Result<Serving, Failure> {
    let program = programs::find("nats-server")?;
    bench.start_beside("nats-server", &program, |address| {
        let port = address.port().to_string();
        let words = ["--addr", "127.0.0.1", "--port", &port];
        words.iter().chain(more).map(|word| (*word).to_owned()).collect()
    })
}

/// How many connections a process has to a port of this machine, as the kernel knows them.
fn connections_to(pid: u32, port: u16) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let inodes = established_to(&table, port);
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let targets = descriptors.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
    let sockets = targets.filter_map(|it| {
        Some(it.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    });
    sockets.filter(|inode| inodes.contains(inode)).count()
}

/// Inodes of established connections to a port, in a table of the kernel (proc_net_tcp).
fn established_to(table: &str, port: u16) -> Vec<String> {
    let remote_end = format!(":{port:04X}");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter_map(|row| match row[..] {
        [_, _, remote, "01", _, _, _, _, _, inode, ..] if remote.ends_with(&remote_end) => {
            Some(inode.to_owned())
        }
        _ => None,
    })
    .collect()
}

/// Says something and reads until it is enough, or the other side closes.
fn asked(
    address: SocketAddr,
    text: &str,
    is_enough: impl Fn(&str) -> bool,
) -> Result<String, Failure> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(text.as_bytes())?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let count = stream.read(&mut buffer)?;
            answer.extend_from_slice(&buffer[..count]);
            let text = String::from_utf8_lossy(&answer);
            if count == 0 || is_enough(&text) {
                return Ok(text.into_owned());
            }
        }
    };
    ask().map_err(|error| format!("asking {address}: {error}"))
}

/// Sends commands to Redis and answers with all that it said, whose last answer is a text with a length.
fn redis(address: &str, commands: &[&[&str]]) -> Result<String, Failure> {
    let address = address.parse().map_err(|_| format!("`{address}` is no address"))?;
    let mut text = String::new();
    for words in commands {
        text.push_str(&format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    }
    asked(address, &text, |answer| {
        let bulk =
            answer.rsplit_once("\r\n$").map(|(_, bulk)| bulk).and_then(|it| it.split_once("\r\n"));
        bulk.is_some_and(|(length, rest)| {
            length.parse().is_ok_and(|length: usize| rest.len() >= length + 2)
        })
    })
}

/// The connections in an answer to `CLIENT LIST` that are neither ours nor the load generator's.
fn redis_connections(list: &str) -> Vec<Held> {
    let lines = list.lines().filter(|line| line.contains(" addr="));
    let field = |line: &str, key: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default().to_owned()
    };
    lines
        .filter(|line| ![GENERATOR, WATCHER].contains(&field(line, "name=").as_str()))
        .map(|line| Held { subscriptions: field(line, "sub=").parse().ok() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_the_router_are_told_from_ours() {
        let list = "+OK\r\n$500\r\n\
            id=3 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name= age=1 sub=10000 psub=0 ssub=0 cmd=subscribe\n\
            id=4 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name=bench age=1 sub=0 psub=0 cmd=publish\n\
            id=5 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name= age=1 sub=0 psub=0 ssub=0 cmd=hello\n\
            id=6 addr=127.0.0.1:1 laddr=127.0.0.1:2 fd=8 name=watcher age=1 sub=0 psub=0 cmd=client|list\n\r\n";
        let held: Vec<_> = redis_connections(list).iter().map(|it| it.subscriptions).collect();
        assert_eq!(held, [Some(10_000), Some(0)]);
    }

    #[test]
    fn established_connections_to_a_port_are_found() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 11 1 0 100 0 0 10 0\n\
            1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000 0 0 12 1 0 20 4 0 10 -1\n\
            2: 0100007F:C002 0100007F:1F90 06 00000000:00000000 00:00000000 00000000 0 0 13 1 0 20 4 0 10 -1\n\
            3: 0100007F:1F90 0100007F:C001 01 00000000:00000000 00:00000000 00000000 0 0 14 1 0 20 4 0 10 -1\n";
        assert_eq!(established_to(table, 8080), ["12"]);
    }

    #[test]
    fn providers_are_found_by_name() {
        assert_eq!(Provider::parse("redis"), Ok(Provider::Redis));
        assert!(
            Provider::parse("rabbit")
                .is_err_and(|error| error.contains("memory, nats, redis, kafka"))
        );
    }
}
