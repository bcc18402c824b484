//! The largest sample of a sliding window in constant space: Kathleen Nichols' algorithm, as in
//! Linux's `lib/win_minmax.c`. It keeps the best sample and the best two that followed it, to
//! replace it when it is too old.

/// A sample and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sample {
    t: u32,
    v: u32,
}

/// The filter; the caller defines the unit of time (BBR: rounds).
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowedMax {
    s: [Sample; 3],
}

impl WindowedMax {
    /// The current maximum.
    #[inline]
    pub fn get(&self) -> u32 {
        self.s[0].v
    }

    /// Adds a sample of time `t`, for a window of `win`.
    #[inline]
    pub fn update(&mut self, win: u32, t: u32, v: u32) {
        let new = Sample { t, v };
        let s = &mut self.s;
        if v >= s[0].v || t.wrapping_sub(s[2].t) > win {
            *s = [new; 3];
            return;
        }
        if v >= s[1].v {
            s[1] = new;
            s[2] = new;
        } else if v >= s[2].v {
            s[2] = new;
        }
        let age = t.wrapping_sub(s[0].t);
        if age > win {
            *s = [s[1], s[2], new];
            if t.wrapping_sub(s[0].t) > win {
                *s = [s[1], s[2], new];
            }
        } else if s[1].t == s[0].t && age > win / 4 {
            // A quarter of the window without a second best: take one from the second quarter.
            s[1] = new;
            s[2] = new;
        } else if s[2].t == s[1].t && age > win / 2 {
            // Half of the window without a third best: take one from the second half.
            s[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_maximum_is_taken_at_once_and_kept_for_the_window() {
        let mut m = WindowedMax::default();
        m.update(10, 0, 50);
        m.update(10, 1, 100);
        for t in 2..=11 {
            m.update(10, t, 40);
            assert_eq!(m.get(), 100, "at {t}");
        }
        m.update(10, 12, 40);
        assert_eq!(m.get(), 40);
    }

    #[test]
    fn the_estimate_lies_between_the_latest_sample_and_the_true_maximum_of_the_window() {
        let mut rng = quell_qdisc::Rng::new(3, "samples");
        let samples: Vec<u32> = (0..5000).map(|_| rng.below(1000) as u32).collect();
        let mut m = WindowedMax::default();
        for (t, &v) in samples.iter().enumerate() {
            m.update(10, t as u32, v);
            let exact = *samples[t.saturating_sub(10)..=t].iter().max().unwrap();
            assert!(v <= m.get() && m.get() <= exact, "at {t}");
        }
    }
}
