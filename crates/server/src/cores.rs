//! The cores: one single-threaded runtime for each CPU that serves requests. A connection lives and
//! dies on the core that it was placed on; jobs from elsewhere (resolving an event, say) are placed
//! on the least loaded one. Only `Send` data crosses.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use execute::LocalFuture;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

/// Work for a core: called there, the future it makes stays there.
pub(crate) type Job = Box<dyn FnOnce() -> LocalFuture<'static, ()> + Send>;

/// All cores of this process.
pub(crate) struct Cores {
    cores: Vec<Core>,
}

struct Core {
    jobs: mpsc::UnboundedSender<Job>,
    /// Jobs placed here that have not ended: connections, and what runs beside them. What feeds the
    /// unbounded queue is bounded itself: connections by `max_connections`, events by the hub.
    load: Arc<AtomicUsize>,
}

/// Joins the threads of [`Cores`].
#[derive(Debug)]
pub(crate) struct CoreThreads {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// How many CPUs this process may use, affinity and cgroup quota respected.
pub(crate) fn available() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

impl Cores {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// Where the system gives no thread or no epoll instance.
    pub(crate) fn start(count: usize) -> std::io::Result<(Arc<Self>, CoreThreads)> {
        let (stop, stopped) = watch::channel(false);
        let mut cores = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
            let load = Arc::new(AtomicUsize::new(0));
            cores.push(Core { jobs, load: Arc::clone(&load) });
            let mut stopped = stopped.clone();
            let body = move || {
                let tasks = LocalSet::new();
                let serve = async {
                    loop {
                        tokio::select! {
                            job = queue.recv() => match job {
                                Some(job) => {
                                    let ended = Ended(Arc::clone(&load));
                                    tokio::task::spawn_local(async move {
                                        let _ended = ended;
                                        job().await;
                                    });
                                }
                                None => return,
                            },
                            _ = stopped.wait_for(|stop| *stop) => return,
                        }
                    }
                };
                tasks.block_on(&runtime, serve);
            };
            threads.push(std::thread::Builder::new().name(format!("core-{index}")).spawn(body)?);
        }
        Ok((Arc::new(Self { cores }), CoreThreads { threads, stop }))
    }

    /// Runs `job` on the core that has least to do.
    pub(crate) fn run(&self, job: Job) {
        let least = self.cores.iter().min_by_key(|core| core.load.load(Ordering::Relaxed));
        if let Some(core) = least {
            core.load.fetch_add(1, Ordering::Relaxed);
            // Fails only while the process ends; nobody waits for the job then.
            let _ = core.jobs.send(job);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.cores.len()
    }
}

impl hub::Cores for Cores {
    fn run(&self, job: Job) {
        Cores::run(self, job);
    }
}

impl CoreThreads {
    /// Ends all cores and whatever still runs there.
    pub(crate) fn stop(self) {
        let _ = self.stop.send(true);
        for thread in self.threads {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

struct Ended(Arc<AtomicUsize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_on_different_cores_and_their_futures_need_not_be_send() {
        let (cores, threads) = Cores::start(2).expect("two threads");
        let (sender, receiver) = std::sync::mpsc::channel();
        let (release, held) = watch::channel(false);
        for _ in 0..2 {
            let (sender, mut held) = (sender.clone(), held.clone());
            cores.run(Box::new(move || {
                let not_send = std::rc::Rc::new(sender);
                Box::pin(async move {
                    not_send.send(std::thread::current().id()).expect("the test waits");
                    let _ = held.wait_for(|held| *held).await;
                })
            }));
        }
        let (first, second) = (receiver.recv().expect("first"), receiver.recv().expect("second"));
        assert_ne!(first, second);
        release.send(true).expect("both jobs listen");
        threads.stop();
    }
}
