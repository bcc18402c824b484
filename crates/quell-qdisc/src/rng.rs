//! The seeded generator that disciplines and simulations draw from: xoshiro256++ (Blackman and
//! Vigna), seeded by SplitMix64. It is implemented here because every result depends on its
//! numbers, which an update of a library might change.

/// The 64-bit FNV-1a hash of bytes. Two inputs of the same length that differ in only one byte
/// never have the same hash, because each step is a bijection.
pub(crate) fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A stream of random numbers; plain data, so a clone continues with the same numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

impl Rng {
    /// A separate stream for one component of one run.
    pub fn new(seed: u64, component: &str) -> Self {
        // The hash of the name separates the components' streams.
        let mut z = seed ^ fnv_1a(component.bytes());
        let mut next = || {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut y = z;
            y = (y ^ (y >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            y = (y ^ (y >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            y ^ (y >> 31)
        };
        Self {
            s: [next(), next(), next(), next()],
        }
    }

    /// 64 uniform bits.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        let s = &mut self.s;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// 32 uniform bits.
    #[inline]
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// Uniform in [0, 1).
    #[inline]
    pub fn f64(&mut self) -> f64 {
        (self.u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in 0..n (n > 0), by multiplication.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.u64()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with this mean.
    #[inline]
    pub fn exp(&mut self, mean: f64) -> f64 {
        -mean * libm::log(1.0 - self.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_one_seed_have_streams_of_their_own() {
        let (mut a, mut b, mut c) = (
            Rng::new(1, "link"),
            Rng::new(1, "flow"),
            Rng::new(1, "link"),
        );
        let x = a.u64();
        assert_ne!(x, b.u64());
        assert_eq!(x, c.u64());
    }

    #[test]
    fn uniform_and_exponential_have_their_means() {
        let mut r = Rng::new(7, "t");
        let n = 200_000;
        let u: f64 = (0..n).map(|_| r.f64()).sum::<f64>() / f64::from(n);
        let e: f64 = (0..n).map(|_| r.exp(3.0)).sum::<f64>() / f64::from(n);
        assert!((u - 0.5).abs() < 0.005, "{u}");
        assert!((e - 3.0).abs() < 0.03, "{e}");
    }
}
