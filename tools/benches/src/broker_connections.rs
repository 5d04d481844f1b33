//! The connections of the router to a broker, as the broker or the kernel reports them.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use test_kit::commands::Failure;

/// The deadline for a broker's response to a monitoring request.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection name that the load generator gives itself at brokers.
const GENERATOR: &str = "bench";

/// The connection name of this process at brokers.
const WATCHER: &str = "watcher";

/// One connection of the router to a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerConnection {
    /// The number of subjects or channels subscribed on it. `None` if the broker does not report it.
    pub(crate) subscriptions: Option<u64>,
}

/// Lists the connections to a NATS server, except those of the load generator. `monitor` is its monitoring endpoint.
pub(crate) fn list_nats_connections(monitor: SocketAddr) -> Result<Vec<BrokerConnection>, Failure> {
    let response = fetch_json_page(monitor, "/connz")?;
    let connections = response["connections"].as_array().map(Vec::as_slice).unwrap_or_default();
    let others = connections.iter().filter(|it| it["name"] != GENERATOR);
    Ok(others.map(|it| BrokerConnection { subscriptions: it["subscriptions"].as_u64() }).collect())
}

/// Lists the connections to a Redis server, except those of this process and the load generator.
pub(crate) fn list_redis_connections(address: &str) -> Result<Vec<BrokerConnection>, Failure> {
    let commands: [&[&str]; 2] = [&["CLIENT", "SETNAME", WATCHER], &["CLIENT", "LIST"]];
    Ok(redis_connections(&send_redis_commands(address, &commands)?))
}

/// Fetches a page of JSON, such as one of the monitoring endpoint of a NATS server.
pub(crate) fn fetch_json_page(address: SocketAddr, path: &str) -> Result<Value, Failure> {
    serde_json::from_str(&fetch_page(address, path)?)
        .map_err(|error| format!("http://{address}{path}: {error}"))
}

/// Fetches a page and returns its body.
pub(crate) fn fetch_page(address: SocketAddr, path: &str) -> Result<String, Failure> {
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n");
    let text = exchange_text(address, &request, |_| false)?;
    Ok(text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned()))
}

/// Counts the TCP connections of a process to a port of this machine, from the kernel's tables.
pub(crate) fn count_connections(pid: u32, port: u16) -> usize {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let inodes = established_inodes(&table, port);
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let targets = descriptors.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
    let sockets = targets.filter_map(|it| {
        Some(it.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
    });
    sockets.filter(|inode| inodes.contains(inode)).count()
}

/// Returns the inodes of established connections to a port, from the text of `/proc/PID/net/tcp`.
fn established_inodes(table: &str, port: u16) -> Vec<String> {
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

/// Sends `text` and reads until `is_enough` is true of the response or the peer closes the connection.
fn exchange_text(
    address: SocketAddr,
    text: &str,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<String, Failure> {
    let exchange = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        stream.write_all(text.as_bytes())?;
        let (mut response, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        loop {
            let count = stream.read(&mut buffer)?;
            response.extend_from_slice(&buffer[..count]);
            if count == 0 || is_enough(&response) {
                return Ok(String::from_utf8_lossy(&response).into_owned());
            }
        }
    };
    exchange().map_err(|error| format!("request to {address}: {error}"))
}

/// Sends commands to Redis and returns its whole output. The last response must be a bulk string.
fn send_redis_commands(address: &str, commands: &[&[&str]]) -> Result<String, Failure> {
    let address = address.parse().map_err(|_| format!("`{address}` is not an address"))?;
    let mut text = String::new();
    for words in commands {
        text.push_str(&format!("*{}\r\n", words.len()));
        words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    }
    exchange_text(address, &text, |response| {
        let response = String::from_utf8_lossy(response);
        let bulk = response
            .rsplit_once("\r\n$")
            .map(|(_, bulk)| bulk)
            .and_then(|it| it.split_once("\r\n"));
        bulk.is_some_and(|(length, rest)| {
            length.parse().is_ok_and(|length: usize| rest.len() >= length + 2)
        })
    })
}

/// Lists the connections in a response to `CLIENT LIST`, except those of this process and the load generator.
fn redis_connections(list: &str) -> Vec<BrokerConnection> {
    let lines = list.lines().filter(|line| line.contains(" addr="));
    let field = |line: &str, key: &str| {
        line.split(' ').find_map(|word| word.strip_prefix(key)).unwrap_or_default().to_owned()
    };
    lines
        .filter(|line| ![GENERATOR, WATCHER].contains(&field(line, "name=").as_str()))
        .map(|line| BrokerConnection { subscriptions: field(line, "sub=").parse().ok() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_the_bench_are_not_counted_as_the_routers() {
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
        assert_eq!(established_inodes(table, 8080), ["12"]);
    }
}
