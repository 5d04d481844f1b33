//! The settings of a broker and the arguments of the Java virtual machine.

use std::net::SocketAddr;
use std::path::Path;

/// The settings of every broker of tests and measurements. The cleaner would take 128 MB for itself by default.
const COMMON_SETTINGS: &str = include_str!("../../kafka/common.properties");

/// An arbitrary cluster id; the storage tool requires one.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// Returns the settings file of a broker that stores its data in `folder`. `extra` are additional lines, such as limits
/// of stored data; if a setting occurs twice, the last value counts.
pub fn settings(address: SocketAddr, controller: SocketAddr, folder: &Path, extra: &str) -> String {
    format!(
        "{COMMON_SETTINGS}controller.quorum.voters=1@{controller}\n\
         listeners=PLAIN://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAIN://{address}\nlog.dirs={}\n{extra}",
        folder.display()
    )
}

/// Returns the arguments of `java` that format the storage of a broker.
pub fn format_arguments(jars: &Path, settings: &Path) -> Vec<String> {
    let settings = settings.display().to_string();
    let tool =
        ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER, "--config", &settings];
    java_arguments(jars, &["-Xmx96m"], &tool)
}

/// Returns the arguments of `java` that run a broker. `flags` are for the virtual machine, such as `-Xmx512m`.
pub fn broker_arguments(jars: &Path, flags: &[&str], settings: &Path) -> Vec<String> {
    java_arguments(jars, flags, &["kafka.Kafka", &settings.display().to_string()])
}

pub(super) fn java_arguments(jars: &Path, flags: &[&str], words: &[&str]) -> Vec<String> {
    let jars = jars.join("*").display().to_string();
    let arguments = [flags, &["-XX:+UseSerialGC", "-cp", &jars], words].concat();
    arguments.into_iter().map(str::to_owned).collect()
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
