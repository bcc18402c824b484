//! The thread that trains the learner of a loop's controller.
//!
//! Loop and thread exchange decisions and networks in a [`Mailbox`]. Each locks it only if it is
//! free: neither waits for the other, and no unlock has to wake a thread. The thread keeps each
//! network until nothing else uses it, so that the loop never frees one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use quell_link::Error;
use quell_qdisc::control::learn::{Learner, Outbox, Update};
use quell_qdisc::policy::Policy;

use crate::plane::link::LiveLink;
use crate::system::{host, sandbox, sys};

/// Interval at which the thread looks for decisions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// After each training step the thread sleeps for this many times the CPU time that the step took:
/// it uses at most 5 % of a CPU.
const SLEEP_FACTOR: u32 = 19;

/// What a link and its learner exchange.
pub struct Exchange {
    /// The learner, until the thread takes it.
    learner: Option<Box<dyn Learner>>,
    /// Decisions that the learner does not have yet.
    decisions: Outbox,
    /// Networks that the link does not have yet.
    update: Option<Update>,
}

impl Exchange {
    /// The exchange of a new link; `None` if its controller has no learner.
    pub fn of(link: &mut LiveLink) -> Option<Self> {
        let controller = link.controller_mut()?;
        let learner = controller.learner()?;
        Some(Self {
            learner: Some(learner),
            decisions: controller.samples()?.empty_copy(),
            update: None,
        })
    }
}

/// The exchange of a loop's present link; `None` before the first link with a learner.
#[derive(Default)]
pub struct Mailbox(Mutex<Option<Exchange>>);

impl Mailbox {
    /// Passes the link's decisions to its learner, and new networks to the link. A `fresh`
    /// exchange replaces that of the link before. Does nothing while the thread uses the mailbox.
    pub fn serve(&self, link: &mut LiveLink, fresh: &mut Option<Exchange>) {
        let Some(controller) = link.controller_mut() else {
            return;
        };
        let Some(samples) = controller.samples() else {
            return;
        };
        let Ok(mut place) = self.0.try_lock() else {
            return;
        };
        if fresh.is_some() {
            *place = fresh.take();
        }
        let Some(exchange) = place.as_mut() else {
            return;
        };
        samples.move_to(&mut exchange.decisions);
        if let Some(update) = exchange.update.take() {
            controller.install(update);
        }
    }
}

/// The thread's state.
#[derive(Default)]
struct Training {
    learner: Option<Box<dyn Learner>>,
    /// Networks that are not in the mailbox yet.
    ready: Option<Update>,
    /// Networks that the loop may still use; held here so that only this thread frees them.
    handed_over: Vec<Policy>,
}

impl Training {
    /// Takes decisions out of the mailbox and puts networks into it; then trains, if there are
    /// enough decisions.
    fn step(&mut self, mailbox: &Mailbox) {
        self.exchange(mailbox);
        let update = self.learner.as_mut().and_then(|learner| learner.train());
        if let Some(update) = update {
            self.handed_over.retain(Policy::is_shared);
            for network in update.networks() {
                if !self.handed_over.iter().any(|it| it.is_same(network)) {
                    self.handed_over.push(network.clone());
                }
            }
            self.ready = Some(update);
        }
    }

    fn exchange(&mut self, mailbox: &Mailbox) {
        let Ok(mut place) = mailbox.0.try_lock() else {
            return;
        };
        let Some(exchange) = place.as_mut() else {
            return;
        };
        if let Some(learner) = exchange.learner.take() {
            // Networks of the former learner may not fit the new link.
            (self.learner, self.ready) = (Some(learner), None);
        }
        if let Some(learner) = &mut self.learner {
            learner.take(&mut exchange.decisions);
        }
        if let Some(update) = self.ready.take() {
            exchange.update = Some(update);
        }
    }
}

/// Handle of the thread, which ends some time after this value is dropped.
pub struct LearnThread(Arc<AtomicBool>);

impl LearnThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(mailbox: Arc<Mailbox>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let run = move || {
            sys::be_idle();
            sandbox::learner();
            let mut training = Training::default();
            while !stopped.load(Ordering::Relaxed) {
                let clock = ThreadTime::now();
                training.step(&mailbox);
                let until = Instant::now() + SLEEP_FACTOR * clock.elapsed();
                thread::sleep(POLL_INTERVAL);
                while Instant::now() < until && !stopped.load(Ordering::Relaxed) {
                    thread::sleep(POLL_INTERVAL);
                }
            }
        };
        let thread = host::thread("quell-learn").spawn(run);
        thread.map_err(|e| Error::new(format!("cannot start a thread: {e}")))?;
        Ok(Self(stop))
    }
}

impl Drop for LearnThread {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::header::Class;
    use crate::plane::link::{Live, Params};
    use quell_link::words::Queue;
    use quell_qdisc::control::LearnedState;
    use quell_qdisc::control::lfq::FEATURES;
    use quell_qdisc::control::networks::Networks;
    use quell_qdisc::num;
    use quell_qdisc::rate::Rate;
    use quell_qdisc::time::{self, MS};

    const WORDS: &str = "rlaqm throughput period 1ms learn guard";
    /// Rate of the link; twice as many packets of 986 + 14 bytes arrive as it sends.
    const RATE: Rate = Rate::from_mbit(8);

    fn link() -> LiveLink {
        LiveLink::new(Params::line(RATE, Queue::parse(WORDS).expect(WORDS)))
    }

    /// Offers packets in this millisecond, and serves the mailbox each 100 ms.
    fn play(link: &mut LiveLink, ms: u64, mailbox: &Mailbox, fresh: &mut Option<Exchange>) {
        let now = time::Instant::ZERO + ms * MS;
        for k in 0..2 {
            let place = num::low_u32(2 * ms + k) % 100_000;
            link.arrive(now, Live::new(place, 986, &Class::default()));
        }
        link.advance(now, |_, _| ());
        while link.freed().is_some() {}
        if ms.is_multiple_of(100) {
            link.forget();
            mailbox.serve(link, fresh);
        }
    }

    fn networks(link: &LiveLink) -> Networks {
        match link.learned() {
            Some(LearnedState::Networks(networks)) => networks,
            other => panic!("{other:?}"),
        }
    }

    /// Lets link and learner work alternately for the milliseconds in `times`; returns the
    /// allocations of the link's part: their number, and by how many they exceed those freed.
    fn work(
        link: &mut LiveLink,
        training: &mut Training,
        mailbox: &Mailbox,
        fresh: &mut Option<Exchange>,
        times: std::ops::Range<u64>,
    ) -> (u64, i64) {
        let mut counts = (0, 0);
        for ms in times {
            let made = allocation_counter::measure(|| play(link, ms, mailbox, fresh));
            counts.0 += made.count_total;
            counts.1 += made.count_current;
            match ms % 1000 {
                // Training takes long without optimisation.
                50 => training.step(mailbox),
                _ if ms % 100 == 50 => training.exchange(mailbox),
                _ => {}
            }
        }
        counts
    }

    #[test]
    fn the_learners_networks_reach_the_link_which_neither_allocates_nor_frees() {
        let mut link = link();
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Mailbox::default());
        let mut training = Training::default();
        let first = networks(&link).first;
        // The first network comes after 3000 decisions, of 1 ms each.
        work(&mut link, &mut training, &mailbox, &mut fresh, 0..5300);
        assert!(fresh.is_none());
        assert!(!networks(&link).second.network().is_same(&first));
        let made = work(&mut link, &mut training, &mailbox, &mut fresh, 5300..7300);
        assert_eq!(made, (0, 0));
        assert!(networks(&link).first.is_same(&first));
        // The learner keeps few networks: the newest, the one on trial, one that is to be tried.
        let kept = training.handed_over.len();
        assert!((1..=4).contains(&kept), "{kept}");
    }

    #[test]
    fn while_the_mailbox_is_in_use_decisions_stay_and_the_loop_does_not_wait() {
        let mut link = link();
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Mailbox::default());
        let mut training = Training::default();
        let used = mailbox.0.lock().expect("no panic");
        work(&mut link, &mut training, &mailbox, &mut fresh, 1..1001);
        assert!(fresh.is_some() && training.learner.is_none());
        drop(used);
        work(&mut link, &mut training, &mailbox, &mut fresh, 1001..1101);
        let mut decisions = 0;
        let place = mailbox.0.lock().expect("no panic");
        let mut exchange = place.as_ref().map(|it| it.decisions.clone()).expect("it");
        exchange.drain(|_, _, _| decisions += 1);
        assert_eq!(decisions, 1100);
    }

    #[test]
    fn the_experiments_of_lfq_reach_the_mailbox_and_the_link_neither_allocates_nor_frees() {
        let words = "lfq alpha 10 learn";
        let mut link = LiveLink::new(Params::line(RATE, Queue::parse(words).expect(words)));
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Mailbox::default());
        let mut playing = |times: std::ops::Range<u64>| {
            for ms in times {
                play(&mut link, ms, &mailbox, &mut fresh);
            }
        };
        playing(1..1001);
        let made = allocation_counter::measure(|| playing(1001..8001));
        assert_eq!((made.count_total, made.count_current), (0, 0));
        // All packets are of one flow. Its experiment begins within 2.5 s and takes 5 s.
        let mut experiments = 0;
        let place = mailbox.0.lock().expect("no panic");
        let mut exchange = place.as_ref().map(|it| it.decisions.clone()).expect("it");
        exchange.drain(|_, _, _| experiments += 1);
        assert_eq!(experiments, 1);
    }

    #[test]
    fn actor_and_critic_of_lfq_reach_the_link_which_neither_allocates_nor_frees() {
        let words = "lfq alpha 10 learn";
        let mut link = LiveLink::new(Params::line(RATE, Queue::parse(words).expect(words)));
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Mailbox::default());
        mailbox.serve(&mut link, &mut fresh);
        let mut training = Training::default();
        training.exchange(&mailbox);
        let samples = link.controller_mut().and_then(|c| c.samples());
        let mut experiments = samples.expect("samples").empty_copy();
        let before = networks(&link);
        // Features, two limits, no resets.
        let mut row = [17.0; FEATURES + 3];
        row[FEATURES + 2] = 0.0;
        // In the first batches only the critic is trained.
        for batches in 1..=12 {
            for _ in 0..40 {
                experiments.push(&row, 1.0);
            }
            let learner = training.learner.as_mut().expect("a learner");
            learner.take(&mut experiments);
            training.step(&mailbox);
            training.exchange(&mailbox);
            let made = allocation_counter::measure(|| mailbox.serve(&mut link, &mut fresh));
            assert_eq!((made.count_total, made.count_current), (0, 0));
            let now = networks(&link);
            assert!(now.second != before.second && now.first.is_same(&before.first));
            assert_eq!(now.acting.is_same(&before.acting), batches <= 10);
        }
        // The networks of the learner and of the link, and those that the link had before.
        let kept = training.handed_over.len();
        assert!(kept <= 6, "{kept}");
    }

    #[test]
    fn a_network_of_the_former_link_does_not_reach_the_next_one() {
        let mut link = link();
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Mailbox::default());
        mailbox.serve(&mut link, &mut fresh);
        let mut training = Training::default();
        training.exchange(&mailbox);
        training.ready = Some(Update {
            network: networks(&link).first,
            critic: None,
            resets: 0,
        });
        let mut other = super::tests::link();
        let mut fresh = Exchange::of(&mut other);
        mailbox.serve(&mut other, &mut fresh);
        training.exchange(&mailbox);
        let place = mailbox.0.lock().expect("no panic");
        let exchange = place.as_ref().expect("an exchange");
        assert!(exchange.update.is_none() && exchange.learner.is_none());
        assert!(training.learner.is_some() && training.ready.is_none());
    }

    #[test]
    fn a_link_and_a_learner_in_two_threads_lose_no_decision() {
        let mut link = link();
        let (mut fresh, mailbox) = (Exchange::of(&mut link), Arc::new(Mailbox::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let (theirs, stopped) = (mailbox.clone(), stop.clone());
        let thread = thread::spawn(move || {
            let mut training = Training::default();
            while !stopped.load(Ordering::Relaxed) {
                training.exchange(&theirs);
                thread::yield_now();
            }
            training.exchange(&theirs);
            format!("{:?}", training.learner)
        });
        for ms in 1..=2000 {
            play(&mut link, ms, &mailbox, &mut fresh);
        }
        // Decisions that could not be passed while the learner's thread had the mailbox.
        let controller = link.controller_mut().expect("a controller");
        let lost = controller.samples().expect("samples").lost();
        loop {
            mailbox.serve(&mut link, &mut fresh);
            let samples = link.controller_mut().and_then(|c| c.samples()).expect("it");
            let mut left = 0;
            samples.clone().drain(|_, _, _| left += 1);
            if left == 0 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        let learner = thread.join().expect("the learner's thread");
        assert_eq!(lost, 0);
        assert!(learner.contains("since: 2000, seen: 2000"), "{learner}");
    }
}
