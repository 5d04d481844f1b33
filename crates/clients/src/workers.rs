//! The worker threads: one single-threaded runtime for each CPU that serves requests.
//!
//! A connection stays on the worker that it was placed on for its whole life. Jobs from other threads (such as
//! resolving an event) are placed on the least loaded worker. Only `Send` data crosses threads.

use std::cell::RefCell;
use std::num::NonZero;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use config::WorkerCount;
use execute::LocalFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::idle_turns;
use crate::thread_priority::ProcessPriority;

/// Work for a worker. It is called there, and the future that it returns stays there.
pub type Job = Box<dyn FnOnce() -> LocalFuture<'static, ()> + Send>;

/// The number of jobs that begin in one turn. Then those that have begun run for a turn.
const JOBS_PER_TURN: usize = 16;

/// All workers of this process.
pub struct Workers {
    cores: Vec<Worker>,
    /// The index at which the search for the least loaded worker begins, so that equally loaded ones take turns.
    next: AtomicUsize,
}

thread_local! {
    /// The load of the worker that runs on this thread; `None` on other threads.
    static LOAD: RefCell<Option<Arc<AtomicUsize>>> = const { RefCell::new(None) };
}

struct Worker {
    jobs: mpsc::UnboundedSender<Job>,
    /// Jobs that begin before the others: events, which the hub bounds, and which clients already wait for.
    events: mpsc::UnboundedSender<Job>,
    /// The number of unfinished jobs on this worker: connections, also those that [`WorkerLoad`] keeps counted, and
    /// events. The inputs of the unbounded queues are bounded: connections by `max_connections` and the descriptors of
    /// the process, operations on them by `live::client_work`, events by the hub.
    load: Arc<AtomicUsize>,
}

/// Joins the threads of [`Workers`].
#[derive(Debug)]
pub struct WorkerThreads {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// Returns the number of CPUs that this process may use, affinity and cgroup quota respected. On Linux the standard
/// library reads both (`sched_getaffinity`, `cpu.max` of every enclosing group), and rounds a part of a CPU down, but
/// not to zero.
pub fn available() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns the number of worker threads that a configuration asks for.
pub fn count(configured: WorkerCount) -> usize {
    match configured {
        WorkerCount::Auto => available(),
        WorkerCount::Count(count) => usize::from(count),
    }
}

impl Workers {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// The system provides no thread or no epoll instance.
    pub fn start(count: usize) -> std::io::Result<(Arc<Self>, WorkerThreads)> {
        let (stop, stopped) = watch::channel(false);
        let mut cores = Vec::with_capacity(count);
        let mut threads = Vec::with_capacity(count);
        let priority = ProcessPriority::of_current_thread();
        for index in 0..count {
            // The hook runs on the threads of the blocking pool only: the event loop has a thread of its own.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .on_thread_start(move || priority.begin_background())
                .enable_all()
                .build()?;
            let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
            let (events, mut event_queue) = mpsc::unbounded_channel::<Job>();
            let load = Arc::new(AtomicUsize::new(0));
            cores.push(Worker { jobs, events, load: Arc::clone(&load) });
            let mut stopped = stopped.clone();
            let body = move || {
                priority.begin_worker();
                LOAD.set(Some(Arc::clone(&load)));
                idle_turns::begin_worker();
                let tasks = LocalSet::new();
                let serve = async {
                    let mut begun = 0;
                    let run = |job: Job| {
                        let occupied = WorkerLoad(Some(Arc::clone(&load)));
                        async move {
                            let _occupied = occupied;
                            job().await;
                        }
                    };
                    // Not tasks of their own: those wait for all tasks that are ready before them, each time that they
                    // go on, and a saturated worker has very many.
                    let mut events = FuturesUnordered::new();
                    loop {
                        idle_turns::note_turn();
                        let job = tokio::select! {
                            biased;
                            _ = stopped.wait_for(|stop| *stop) => return,
                            // A panic has been reported by its hook, and concerns this event only.
                            Some(_) = events.next() => continue,
                            job = event_queue.recv() => {
                                let Some(job) = job else { return };
                                events.push(AssertUnwindSafe(run(job)).catch_unwind());
                                continue;
                            }
                            job = queue.recv() => job,
                        };
                        let Some(job) = job else { return };
                        begun += 1;
                        tokio::task::spawn_local(run(job));
                        if begun >= JOBS_PER_TURN {
                            begun = 0;
                            // The jobs that have begun run now, so an event waits for no more than these.
                            tokio::task::yield_now().await;
                        }
                    }
                };
                tasks.block_on(&runtime, serve);
            };
            threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(body)?);
        }
        let next = AtomicUsize::new(0);
        Ok((Arc::new(Self { cores, next }), WorkerThreads { threads, stop }))
    }

    /// Runs `job` on the least loaded worker.
    pub fn run(&self, job: Job) {
        self.place(job, |core| &core.jobs);
    }

    /// Runs `job` on the least loaded worker, before the jobs of [`Workers::run`] that wait there.
    pub fn run_first(&self, job: Job) {
        self.place(job, |core| &core.events);
    }

    fn place(&self, job: Job, queue: impl FnOnce(&Worker) -> &mpsc::UnboundedSender<Job>) {
        let (later, first) = self
            .cores
            .split_at(self.next.fetch_add(1, Ordering::Relaxed) % self.cores.len().max(1));
        let least = first.iter().chain(later).min_by_key(|core| core.load.load(Ordering::Relaxed));
        if let Some(core) = least {
            core.load.fetch_add(1, Ordering::Relaxed);
            // Fails only while the process ends; no caller waits for the job then.
            let _ = queue(core).send(job);
        }
    }

    /// Returns the load of each worker: its connections and events.
    pub fn loads(&self) -> Vec<usize> {
        self.cores.iter().map(|core| core.load.load(Ordering::Relaxed)).collect()
    }

    /// The number of workers.
    pub fn count(&self) -> usize {
        self.cores.len()
    }
}

impl WorkerThreads {
    /// Stops all workers and everything that runs there.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        for thread in self.threads {
            // A panic there has been reported by its own hook.
            let _ = thread.join();
        }
    }
}

/// Keeps a worker counted as loaded until this is dropped.
#[derive(Debug)]
pub struct WorkerLoad(Option<Arc<AtomicUsize>>);

/// Counts the worker of this thread once more, for a connection that outlives its job, such as a WebSocket after its
/// handshake. No effect on other threads.
pub fn hold_worker() -> WorkerLoad {
    let load = LOAD.with_borrow(Clone::clone);
    if let Some(load) = &load {
        load.fetch_add(1, Ordering::Relaxed);
    }
    WorkerLoad(load)
}

/// Runs `work` after the tasks of this worker that are ready now, so that they can add to it. Runs it at once on other
/// threads, and while this one panics.
pub fn after_ready_tasks(work: impl FnOnce() + 'static) {
    if LOAD.with_borrow(Option::is_some) && !std::thread::panicking() {
        tokio::task::spawn_local(async move { work() });
    } else {
        work();
    }
}

impl Drop for WorkerLoad {
    fn drop(&mut self) {
        if let Some(load) = &self.0 {
            load.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_run_on_different_cores_and_their_futures_need_not_be_send() {
        let (cores, threads) = Workers::start(2).expect("two threads");
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

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_may_use_one_cpu_has_one_core() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        // Affinity belongs to a thread, and this one ends.
        let pinned = std::thread::spawn(|| {
            let allowed = sched_getaffinity(None).expect("a set of CPUs");
            let one = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("a CPU");
            let mut only = CpuSet::new();
            only.set(one);
            sched_setaffinity(None, &only).expect("a part of what is allowed");
            available()
        });
        assert_eq!(pinned.join().expect("no panic"), 1);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_pool_of_a_worker_has_a_lower_priority_than_its_event_loop() {
        use rustix::process::getpriority_process;
        let usual = getpriority_process(None).expect("the priority of this thread");
        let (cores, threads) = Workers::start(1).expect("a thread");
        let (sender, receiver) = std::sync::mpsc::channel();
        cores.run(Box::new(move || {
            Box::pin(async move {
                let blocking = tokio::task::spawn_blocking(|| getpriority_process(None)).await;
                let event_loop = getpriority_process(None);
                sender.send((event_loop, blocking)).expect("the test waits");
            })
        }));
        let (event_loop, blocking) = receiver.recv().expect("the job runs");
        let blocking = blocking.expect("no panic").expect("the priority of a thread of the pool");
        let event_loop = event_loop.expect("the priority of the event loop");
        // 19 is the lowest one.
        assert_eq!([event_loop, blocking], [(usual + 2).min(19), (usual + 7).min(19)]);
        threads.stop();
    }

    /// Keeps the only worker from all other work until the returned sender is dropped.
    fn hold_all_work(cores: &Workers) -> std::sync::mpsc::Sender<()> {
        let (release, held) = std::sync::mpsc::channel();
        cores.run(Box::new(move || {
            let _ = held.recv();
            Box::pin(async {})
        }));
        release
    }

    #[test]
    fn an_event_waits_for_a_few_jobs_and_not_for_all() {
        const JOBS: usize = 1000;
        let (cores, threads) = Workers::start(1).expect("a thread");
        let release = hold_all_work(&cores);
        let (sender, receiver) = std::sync::mpsc::channel();
        let job = |name: &'static str| {
            let sender = sender.clone();
            Box::new(move || {
                Box::pin(async move { sender.send(name).expect("the test waits") })
                    as LocalFuture<'static, ()>
            })
        };
        for _ in 0..JOBS {
            cores.run(job("job"));
        }
        cores.run_first(job("event"));
        drop(release);
        let order: Vec<_> = receiver.iter().take(JOBS + 1).collect();
        let place = order.iter().position(|name| *name == "event");
        assert!(place.is_some_and(|place| place <= JOBS_PER_TURN), "{place:?}");
        threads.stop();
    }

    #[test]
    fn an_event_goes_on_before_tasks_that_are_ready_and_survives_the_panic_of_another() {
        let (cores, threads) = Workers::start(1).expect("a thread");
        let release = hold_all_work(&cores);
        let (sender, receiver) = std::sync::mpsc::channel();
        let job = |name: &'static str, steps: u32| {
            let sender = sender.clone();
            Box::new(move || {
                Box::pin(async move {
                    for _ in 0..steps {
                        tokio::task::yield_now().await;
                    }
                    sender.send(name).expect("the test waits");
                }) as LocalFuture<'static, ()>
            })
        };
        for _ in 0..1000 {
            cores.run(job("job", 1));
        }
        cores.run_first(Box::new(|| Box::pin(async { panic!("an event that fails") })));
        cores.run_first(job("event", 8));
        drop(release);
        let order: Vec<_> = receiver.iter().take(1001).collect();
        let place = order.iter().position(|name| *name == "event");
        assert!(place.is_some_and(|place| place < 900), "{place:?}");
        let loads = || cores.loads().iter().sum::<usize>();
        while loads() > 0 {
            std::thread::yield_now();
        }
        threads.stop();
    }

    #[test]
    fn work_for_later_runs_after_the_tasks_that_are_ready() {
        let (cores, threads) = Workers::start(1).expect("a thread");
        let release = hold_all_work(&cores);
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..3 {
            let sender = sender.clone();
            cores.run(Box::new(move || {
                Box::pin(async move {
                    let later = sender.clone();
                    after_ready_tasks(move || later.send(10 + number).expect("the test waits"));
                    sender.send(number).expect("the test waits");
                })
            }));
        }
        drop(release);
        assert_eq!(receiver.iter().take(6).collect::<Vec<_>>(), [0, 1, 2, 10, 11, 12]);
        threads.stop();
        after_ready_tasks(move || sender.send(20).expect("the test waits"));
        assert_eq!(receiver.try_recv(), Ok(20), "other threads have no tasks");
    }

    #[test]
    fn a_connection_that_outlives_its_job_still_counts_as_load() {
        let (cores, threads) = Workers::start(2).expect("two threads");
        let load =
            || -> usize { cores.cores.iter().map(|core| core.load.load(Ordering::Relaxed)).sum() };
        let (sender, receiver) = std::sync::mpsc::channel();
        let run = || {
            let sender = sender.clone();
            cores.run(Box::new(move || {
                Box::pin(async move {
                    let left = (std::thread::current().id(), hold_worker());
                    sender.send(left).expect("the test waits");
                })
            }));
            receiver.recv().expect("the job runs")
        };
        // Equally loaded workers take turns, so one round alone would prove nothing.
        for _ in 0..4 {
            let first = run();
            while load() > 1 {
                std::thread::yield_now();
            }
            let second = run();
            assert_ne!(first.0, second.0);
            drop((first, second));
            while load() > 0 {
                std::thread::yield_now();
            }
            // Advances the turn by one, so that the next round begins at another worker.
            cores.next.fetch_add(1, Ordering::Relaxed);
        }
        threads.stop();
    }
}
