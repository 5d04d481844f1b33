//! A Kafka broker (KRaft, one node): its settings and the arguments of the Java virtual machine.
//!
//! `cargo xtask test` fetches the jars and passes their folder in `STARLING_TEST_KAFKA`.

use std::net::SocketAddr;
use std::path::Path;

/// The settings of every broker of tests and measurements.
const SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAIN
listener.security.protocol.map=PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT
log.cleaner.dedupe.buffer.size=4194304
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
log.initial.task.delay.ms=100
file.delete.delay.ms=100
";

/// An arbitrary cluster id; the storage tool requires one.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// Returns the settings file of a broker that stores its data in `folder`. `extra` are additional lines, such as limits
/// of stored data.
pub fn settings(address: SocketAddr, controller: SocketAddr, folder: &Path, extra: &str) -> String {
    format!(
        "{SETTINGS}{extra}controller.quorum.voters=1@{controller}\n\
         listeners=PLAIN://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAIN://{address}\nlog.dirs={}\n",
        folder.display()
    )
}

/// Returns the arguments of `java` that format the storage of a broker.
pub fn format_arguments(jars: &Path, settings: &Path) -> Vec<String> {
    let settings = settings.display().to_string();
    let tool =
        ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config", &settings];
    java_arguments(jars, "-Xmx96m").into_iter().chain(tool.map(str::to_owned)).collect()
}

/// Returns the arguments of `java` that run a broker with this maximum heap size, such as `-Xmx512m`.
pub fn broker_arguments(jars: &Path, heap: &str, settings: &Path) -> Vec<String> {
    let broker = ["kafka.Kafka".to_owned(), settings.display().to_string()];
    java_arguments(jars, heap).into_iter().chain(broker).collect()
}

fn java_arguments(jars: &Path, heap: &str) -> [String; 4] {
    let jars = jars.join("*").display().to_string();
    [heap.to_owned(), "-XX:+UseSerialGC".to_owned(), "-cp".to_owned(), jars]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_contain_the_addresses_the_folder_and_the_extra_lines() {
        let [address, controller] =
            [9092, 9093].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let text = settings(address, controller, Path::new("/data"), "log.retention.bytes=1\n");
        let lines: Vec<&str> = text.lines().collect();
        for line in [
            "log.retention.bytes=1",
            "listeners=PLAIN://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "log.dirs=/data",
        ] {
            assert!(lines.contains(&line), "{line}");
        }
    }
}
