//! Tests of a graph that the router composes from a folder of schemas: the changes that are noticed, and the graph that
//! is read then.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use config::diagnostic::{Style, render};
use tempfile::TempDir;

use crate::composition::ReadScope;
use crate::graph_watch::GraphWatch;
use crate::supergraph_source::SupergraphSource;

/// More than a change takes, also if it is noticed by the checks of files only.
const DEADLINE: Duration = Duration::from_secs(20);

/// A folder of schemas, and the graph that is composed from it.
struct SchemaFolder {
    folder: TempDir,
    watch: GraphWatch,
}

impl SchemaFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let urls = ["a", "b"].map(|name| (name.to_owned(), format!("http://{name}/")));
        let source = SupergraphSource::Directory {
            folder: folder.path().to_owned(),
            urls: BTreeMap::from(urls),
        };
        Self { folder, watch: GraphWatch::new(source, false).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a schema with one field.
    fn write(&self, name: &str, field: &str) {
        fs::write(self.path(name), format!("type Query {{ {field}: Int }}\n")).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).unwrap();
    }

    /// Returns the graph, or the messages.
    async fn read(&mut self, scope: ReadScope) -> String {
        match self.watch.read(scope).await {
            Ok(read) => read.text.text.clone(),
            Err(problems) => render(&problems, Style::Plain),
        }
    }

    /// Waits for changes until the graph or the messages are as expected.
    async fn wait_until(&mut self, is_expected: impl Fn(&str) -> bool) {
        let waiting = async {
            loop {
                let scope = self.watch.wait_for_change().await;
                if is_expected(&self.read(scope).await) {
                    return;
                }
            }
        };
        tokio::time::timeout(DEADLINE, waiting).await.expect("the change is noticed");
    }
}

#[tokio::test]
async fn files_that_are_added_changed_and_removed_are_composed_again() {
    let mut schemas = SchemaFolder::new();
    schemas.write("a.graphql", "first");
    let graph = schemas.read(ReadScope::Everything).await;
    assert!(graph.contains("first: Int"), "{graph}");
    assert!(graph.contains(r#"@join__graph(name: "a", url: "http://a/")"#), "{graph}");

    schemas.write("b.gql", "second");
    schemas.wait_until(|graph| graph.contains("second: Int")).await;
    schemas.write("a.graphql", "third");
    schemas.wait_until(|graph| graph.contains("third: Int")).await;
    schemas.remove("b.gql");
    schemas.wait_until(|graph| graph.contains("third: Int") && !graph.contains("second")).await;
}

#[tokio::test]
async fn a_folder_with_mistakes_is_read_again_when_it_is_corrected() {
    let mut schemas = SchemaFolder::new();
    let message = schemas.read(ReadScope::Everything).await;
    assert!(message.contains("error[no-subgraphs]"), "{message}");

    schemas.write("a.graphql", "first");
    schemas.wait_until(|graph| graph.contains("first: Int")).await;
    schemas.write("a.gql", "first");
    schemas.wait_until(|message| message.contains("error[duplicate-name]")).await;
    schemas.remove("a.gql");
    schemas.wait_until(|graph| graph.contains("first: Int")).await;
    // No URL is configured for it.
    schemas.write("c.graphql", "second");
    schemas.wait_until(|message| message.contains("set `subgraphs.c.url`")).await;
    schemas.remove("c.graphql");
    schemas.wait_until(|graph| graph.contains("first: Int")).await;
}

#[cfg(unix)]
#[tokio::test]
async fn an_update_of_a_kubernetes_volume_is_noticed() {
    use std::os::unix::fs::symlink;
    let mut schemas = SchemaFolder::new();
    fs::create_dir(schemas.path("..1")).unwrap();
    schemas.write("..1/a.graphql", "before");
    symlink("..1", schemas.path("..data")).unwrap();
    symlink("..data/a.graphql", schemas.path("a.graphql")).unwrap();
    let graph = schemas.read(ReadScope::Everything).await;
    assert!(graph.contains("before: Int"), "{graph}");

    // As the kubelet does it: new files beside the old ones, the link, then the links of new files.
    fs::create_dir(schemas.path("..2")).unwrap();
    schemas.write("..2/a.graphql", "after");
    schemas.write("..2/b.graphql", "added");
    symlink("..2", schemas.path("..data_tmp")).unwrap();
    fs::rename(schemas.path("..data_tmp"), schemas.path("..data")).unwrap();
    symlink("..data/b.graphql", schemas.path("b.graphql")).unwrap();
    fs::remove_dir_all(schemas.path("..1")).unwrap();
    schemas.wait_until(|graph| graph.contains("after: Int") && graph.contains("added: Int")).await;
}
