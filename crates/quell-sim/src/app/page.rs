//! Loads of a web page by a browser, with pauses to read between them. A load consists of a name
//! query, connections, the HTML document, the objects that it names, and the objects that these
//! name.

use std::collections::VecDeque;

use quell_link::hist::Hist;
use quell_link::record::Application;
use quell_qdisc::time::{Duration, Instant, MS, NEVER};
use quell_qdisc::{Rng, num};

use super::{Action, Event};
use crate::scenario::Page;

/// A class of objects of the median desktop page (docs/explanation/applications.md).
struct Class {
    /// Number of objects that the document names, and of objects that these name.
    counts: [u32; 2],
    /// Total size of all objects, bytes.
    bytes: f64,
}

/// Mean size of the document, bytes.
const HTML: f64 = 18e3;
/// Style sheets, scripts, images, fonts, other objects.
const CLASSES: [Class; 5] = [
    Class {
        counts: [8, 0],
        bytes: 78e3,
    },
    Class {
        counts: [12, 12],
        bytes: 613e3,
    },
    Class {
        counts: [12, 6],
        bytes: 1054e3,
    },
    Class {
        counts: [0, 4],
        bytes: 131e3,
    },
    Class {
        counts: [0, 16],
        bytes: 758e3,
    },
];
/// Smallest object, bytes: headers alone.
const MIN_BYTES: u64 = 100;
/// Standard deviation of the natural logarithm of a page's size.
const SPREAD: f64 = 1.0;
/// Time after which a reader gives up.
const READER_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of connections of a browser to a server with HTTP/1.1.
const PARALLEL: usize = 6;

/// A reader of pages.
#[derive(Clone, Debug)]
pub struct Reader {
    page: Page,
    rng: Rng,
    /// Start of the current load; `NEVER` while a page is read.
    began: Instant,
    /// Start of the next load, or time at which the reader gives up.
    pub wake_at: Instant,
    /// Sizes of objects not yet requested, bytes.
    waiting: VecDeque<u64>,
    /// Sizes of the objects that the document names, and of the objects that these name, bytes.
    /// Each list is requested once all objects before it have arrived.
    later: [Vec<u64>; 2],
    /// Number of objects requested and not yet received.
    open: usize,
    /// Connections that can take a request.
    idle: Vec<u8>,
    /// Load times, ns; a load that was given up counts with its time until then.
    loads: Hist,
    /// Number of loads that were given up.
    given_up: u64,
    /// Whether the first load has started.
    started: bool,
}

impl Reader {
    /// A reader whose first load starts at `start`.
    pub fn new(page: &Page, rng: Rng, start: Instant) -> Self {
        Self {
            page: page.clone(),
            rng,
            began: NEVER,
            wake_at: start,
            waiting: VecDeque::new(),
            later: [Vec::new(), Vec::new()],
            open: 0,
            idle: Vec::new(),
            loads: Hist::new(),
            given_up: 0,
            started: false,
        }
    }

    /// Handles an event.
    pub fn on(&mut self, now: Instant, event: Event, measuring: bool, todo: &mut Vec<Action>) {
        match event {
            Event::Wake if self.began == NEVER => self.begin(now, todo),
            Event::Wake => {
                self.given_up += u64::from(measuring);
                self.end(now, measuring, todo);
            }
            Event::Resolved => {
                let count = if self.page.http2 { 1 } else { PARALLEL };
                todo.extend((0..num::low_u8(count as u64)).map(Action::Connect));
            }
            Event::Opened(_) => {}
            Event::Connected(connection) => {
                self.idle.push(connection);
                self.request_objects(todo);
            }
            Event::Received(connection) => {
                self.open -= 1;
                if !self.page.http2 {
                    self.idle.push(connection);
                }
                if self.open == 0 && self.waiting.is_empty() {
                    let [named, found] = &mut self.later;
                    self.waiting.extend(named.drain(..));
                    std::mem::swap(named, found);
                    if self.waiting.is_empty() {
                        return self.end(now, measuring, todo);
                    }
                }
                self.request_objects(todo);
            }
        }
    }

    fn begin(&mut self, now: Instant, todo: &mut Vec<Action>) {
        self.began = now;
        self.started = true;
        self.wake_at = now + READER_TIMEOUT;
        self.open = 0;
        self.idle.clear();
        self.waiting.clear();
        self.draw();
        todo.push(Action::Resolve);
    }

    /// Draws the sizes of a page's objects.
    fn draw(&mut self) {
        let weight = libm::exp(SPREAD * normal(&mut self.rng));
        let rng = &mut self.rng;
        let mut size = |mean: f64| num::whole_u64(rng.exp(mean * weight)).max(MIN_BYTES);
        self.waiting.push_back(size(HTML));
        self.later.iter_mut().for_each(Vec::clear);
        for class in &CLASSES {
            let mean = class.bytes / f64::from(class.counts[0] + class.counts[1]);
            for (objects, count) in self.later.iter_mut().zip(class.counts) {
                objects.extend((0..count).map(|_| size(mean)));
            }
        }
    }

    fn request_objects(&mut self, todo: &mut Vec<Action>) {
        while let Some(&connection) = self.idle.last() {
            let Some(bytes) = self.waiting.pop_front() else {
                return;
            };
            if !self.page.http2 {
                self.idle.pop();
            }
            self.open += 1;
            todo.push(Action::Fetch(connection, bytes));
        }
    }

    fn end(&mut self, now: Instant, measuring: bool, todo: &mut Vec<Action>) {
        if measuring {
            self.loads.record((now - self.began).as_nanos());
        }
        self.began = NEVER;
        self.wake_at = now
            + Duration::from_nanos(num::whole_u64(
                self.rng.exp(self.page.think.as_nanos() as f64),
            ));
        todo.push(Action::Close);
    }

    /// Load times of the pages that were loaded or given up after the warm-up; `None` before the
    /// first load.
    pub fn result(&self) -> Option<Application> {
        let pages = self.loads.count();
        self.started.then(|| Application {
            page_load_ms: (pages > 0).then(|| self.loads.summary(1.0 / MS.as_nanos() as f64)),
            pages: Some(pages),
            given_up: Some(self.given_up),
            ..Application::default()
        })
    }
}

/// A draw from the standard normal distribution (Box-Muller).
fn normal(rng: &mut Rng) -> f64 {
    let radius = libm::sqrt(2.0 * rng.exp(1.0));
    radius * libm::cos(std::f64::consts::TAU * rng.f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Loads one page over a network that answers at once. Returns the requests, each with its
    /// connection, and the number of connections.
    fn load(page: &Page) -> (Vec<(u8, u64)>, usize) {
        let mut reader = Reader::new(page, Rng::new(1, "page"), Instant::ZERO);
        let (mut todo, mut fetched, mut connected) = (Vec::new(), Vec::new(), 0);
        reader.on(Instant::ZERO, Event::Wake, true, &mut todo);
        while !todo.is_empty() {
            match todo.remove(0) {
                Action::Resolve => reader.on(Instant::ZERO, Event::Resolved, true, &mut todo),
                Action::Connect(c) => {
                    connected += 1;
                    reader.on(Instant::ZERO, Event::Connected(c), true, &mut todo);
                }
                Action::Fetch(c, bytes) => {
                    fetched.push((c, bytes));
                    reader.on(Instant::ZERO, Event::Received(c), true, &mut todo);
                }
                Action::HangUp(_) | Action::Close => break,
            }
        }
        assert_eq!(reader.result().and_then(|r| r.pages), Some(1));
        (fetched, connected)
    }

    #[test]
    fn a_page_has_71_requests_over_one_connection_or_six() {
        let page = Page::default();
        let (fetched, connected) = load(&page);
        assert_eq!((fetched.len(), connected), (71, 1));
        let old = Page {
            http2: false,
            ..page
        };
        let (fetched, connected) = load(&old);
        assert_eq!((fetched.len(), connected), (71, 6));
    }

    #[test]
    fn a_load_that_times_out_is_counted_and_no_load_gives_none() {
        let mut reader = Reader::new(&Page::default(), Rng::new(1, "page"), Instant::ZERO);
        assert!(reader.result().is_none());
        reader.on(Instant::ZERO, Event::Wake, true, &mut Vec::new());
        let waiting = reader.result().expect("a reader");
        assert_eq!((waiting.page_load_ms, waiting.pages), (None, Some(0)));
        // No answer for 60 s.
        reader.on(
            Instant::ZERO + READER_TIMEOUT,
            Event::Wake,
            true,
            &mut Vec::new(),
        );
        let over = reader.result().expect("a reader");
        assert_eq!((over.pages, over.given_up), (Some(1), Some(1)));
        assert_eq!(over.page_load_ms.map(|s| s.max), Some(60_000.0));
    }

    #[test]
    fn the_median_page_weighs_what_is_published() {
        let mut reader = Reader::new(&Page::default(), Rng::new(7, "pages"), Instant::ZERO);
        let mut weights: Vec<u64> = (0..4000)
            .map(|_| {
                reader.waiting.clear();
                reader.draw();
                let later = reader.later.iter().flatten();
                reader.waiting.iter().chain(later).sum()
            })
            .collect();
        weights.sort_unstable();
        // 2,652 kB; the standard error of the median of 4000 pages is 2 %.
        let median = weights[2000] as f64;
        assert!((median / 2.652e6 - 1.0).abs() < 0.08, "{median}");
        // Published: 7.4 MB at the 90th and 4 MB at the 75th percentile.
        let ratio = weights[3600] as f64 / weights[3000] as f64;
        assert!((ratio / 1.85 - 1.0).abs() < 0.1, "{ratio}");
    }
}
