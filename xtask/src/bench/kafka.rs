//! A Kafka broker for measurements: one node, run from the jars of the tests, in a folder that is recreated at each
//! start.

use super::Bench;
use super::server_process::{OTHER_CORE, ServerProcess, free_address, pinned_command, write_file};
use crate::{Failure, kafka, process};
use std::path::Path;

/// The settings of a single-node broker. Segments are deleted soon after they were read: an hour of measurements would
/// otherwise fill the disk.
const SETTINGS: &str = "
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
log.segment.bytes=33554432
log.retention.bytes=134217728
log.retention.check.interval.ms=2000
file.delete.delay.ms=100
";

/// A heap that suffices for batches of events at full speed and leaves the rest of the machine to the router.
const HEAP: &str = "-Xmx512m";

/// An arbitrary cluster id; the storage tool requires one.
const CLUSTER: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// Starts a broker on the load generator's core.
pub(super) fn start(bench: &Bench) -> Result<ServerProcess, Failure> {
    let jars = kafka::prepare(&bench.tool)?;
    let folder = bench.reports.join("scratch/kafka");
    // The folder is missing on the first run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (address, controller) = (free_address()?, free_address()?);
    let settings = folder.join("server.properties");
    let text = format!(
        "{SETTINGS}controller.quorum.voters=1@{controller}\n\
         listeners=PLAIN://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAIN://{address}\nlog.dirs={}\n",
        folder.join("data").display()
    );
    write_file(&settings, &text)?;
    let mut format = pinned_command(OTHER_CORE, "java");
    format.args(java_arguments(&jars, "-Xmx96m")).args(["kafka.tools.StorageTool", "format"]);
    format.args(["--cluster-id", CLUSTER, "--config"]).arg(&settings);
    process::read_output(&mut format)?;
    let mut broker = pinned_command(OTHER_CORE, "java");
    broker.args(java_arguments(&jars, HEAP)).arg("kafka.Kafka").arg(&settings).current_dir(&folder);
    bench.start_server(broker, "kafka", address, String::new(), None)
}

/// Returns the arguments of the Java virtual machine.
fn java_arguments(jars: &Path, heap: &str) -> [String; 4] {
    let jars = jars.join("*").display().to_string();
    [heap.to_owned(), "-XX:+UseSerialGC".to_owned(), "-cp".to_owned(), jars]
}
