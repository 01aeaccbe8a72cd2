//! Ranks of a test: threads of this process that join one communicator.
use gsel::{Comm, UniqueId};
use std::time::Duration;

/// Runs `body` on n ranks and returns what each returned, in rank order. A panic of a rank is one of the test.
pub fn ranks<R: Send + 'static>(n: usize, body: impl Fn(Comm) -> R + Send + Sync + Clone + 'static) -> Vec<R> {
    let id = UniqueId::create().unwrap();
    let threads: Vec<_> = (0..n)
        .map(|rank| {
            let body = body.clone();
            std::thread::spawn(move || {
                let comm = Comm::builder()
                    .ranks(rank, n, id)
                    .timeout(Duration::from_secs(60))
                    .join()
                    .unwrap();
                body(comm)
            })
        })
        .collect();
    let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
    ended
        .into_iter()
        .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        .collect()
}
