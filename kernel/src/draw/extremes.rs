//! The largest and the smallest of many numbers, in lanes that a processor compares together.

use crate::draw::exp::{Real, LANES};

/// Up to `LANES` numbers, and none where they end.
#[inline(always)]
pub fn padded<T: Real>(numbers: &[T]) -> [T; LANES] {
    let mut lanes = [T::LEAST; LANES];
    lanes.iter_mut().zip(numbers).for_each(|(lane, &number)| *lane = number);
    lanes
}

/// The greater of two numbers; the other one where one is not a number.
#[inline(always)]
fn greater<T: Real>(one: T, other: T) -> T {
    if one > other {
        one
    } else {
        other
    }
}

/// The largest of some numbers; anything that is not a number is passed over.
#[inline(always)]
pub fn largest_of<T: Real>(numbers: &[T; LANES]) -> T {
    let (mut lanes, mut half) = ([T::LEAST; LANES], LANES / 2);
    lanes.iter_mut().zip(numbers).for_each(|(lane, &number)| *lane = greater(number, *lane));
    while half > 0 {
        let (left, right) = lanes.split_at_mut(half);
        left.iter_mut().zip(right).for_each(|(left, right)| *left = greater(*right, *left));
        half /= 2;
    }
    let [first, ..] = lanes;
    first
}

/// The largest of any numbers.
#[inline(always)]
pub fn largest<T: Real>(numbers: &[T]) -> T {
    let (whole, rest) = numbers.as_chunks::<LANES>();
    let mut lanes = padded::<T>(&[]);
    for numbers in whole {
        lanes.iter_mut().zip(numbers).for_each(|(lane, &number)| *lane = greater(number, *lane));
    }
    rest.iter().fold(largest_of(&lanes), |largest, &number| greater(number, largest))
}

/// The smallest squared distance, in lanes that a processor compares together.
#[inline(always)]
pub fn smallest<T: Real>(products: &[T], norms: &[f64], squared: impl Fn(T, f64) -> f64) -> f64 {
    let lesser = |a: f64, b: f64| if a < b { a } else { b };
    let mut lanes = [f64::INFINITY; LANES];
    let (products, products_rest) = products.as_chunks::<LANES>();
    let (norms, norms_rest) = norms.as_chunks::<LANES>();
    for (products, norms) in products.iter().zip(norms) {
        for ((lane, &product), &norm) in lanes.iter_mut().zip(products).zip(norms) {
            *lane = lesser(squared(product, norm), *lane);
        }
    }
    let rest = products_rest.iter().zip(norms_rest).map(|(&product, &norm)| squared(product, norm));
    lanes.into_iter().chain(rest).fold(f64::INFINITY, lesser)
}
