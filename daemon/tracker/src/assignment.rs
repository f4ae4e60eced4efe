//! The assignment of rows to columns of the least cost.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No row or no column.
const NONE: u32 = u32::MAX;
/// Pairs that a row keeps, the cheapest. In real scenes fewer than ten boxes overlap one.
pub(crate) const PAIRS_PER_ROW: usize = 64;
/// Pairs that the search for one row looks at before it takes the cheapest free column.
const PAIRS_PER_SEARCH: usize = 1 << 14;
/// Cost of a row without a column, and the cost that a pair must be below.
const LIMIT: u32 = 1 << 20;

/// Assigns rows to columns so that the sum of the costs is the least, where a row without a column costs [`LIMIT`].
///
/// Shortest augmenting paths with prices (Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear
/// assignment problems", 1987) over the pairs that passed the gate. The search for a row visits only what pairs connect with it, and ends
/// at a free column or where it is cheaper to leave a row out: each connected component is solved by itself. Costs are integers, so
/// nothing is rounded. With [`PAIRS_PER_ROW`] and [`PAIRS_PER_SEARCH`] the time is linear in the rows, whatever the pairs; beyond the
/// latter the result is valid, but may not be the cheapest.
#[derive(Debug, Default)]
pub(crate) struct Assignment {
    rows: Vec<Row>,
    columns: Vec<Column>,
    pairs: Vec<Pair>,
    // Of the search under way.
    reached: Vec<u32>,
    settled: Vec<u32>,
    heap: BinaryHeap<Reverse<(i64, u32)>>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    /// Where its pairs begin and end.
    pairs: [u32; 2],
    column: u32,
    price: i64,
}

#[derive(Debug, Clone, Copy)]
struct Column {
    row: u32,
    price: i64,
    /// The least cost to reach it in the search under way, `i64::MAX` where none is known, and the row before it.
    distance: i64,
    from: u32,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    column: u32,
    cost: u32,
}

impl Assignment {
    /// Begins a problem with that many columns and no row.
    pub(crate) fn begin(&mut self, columns: usize) {
        self.rows.clear();
        self.pairs.clear();
        self.columns.clear();
        self.columns.resize(columns, Column { row: NONE, price: 0, distance: i64::MAX, from: NONE });
    }

    /// Adds a pair of the row that `end_row` ends. `gain` is above 0, where the pair is as good as none, to 1.
    pub(crate) fn pair(&mut self, column: usize, gain: f64) {
        debug_assert!(column < self.columns.len());
        // The cast of a NaN is 0.
        let gain = (gain * f64::from(LIMIT)) as u32;
        if gain > 0 {
            self.pairs.push(Pair { column: column as u32, cost: LIMIT - gain.min(LIMIT) });
        }
    }

    /// Ends a row.
    pub(crate) fn end_row(&mut self) {
        let start = self.rows.last().map_or(0, |row| row.pairs[1]);
        let row = self.pairs.get_mut(start as usize..).unwrap_or_default();
        if row.len() > PAIRS_PER_ROW {
            row.select_nth_unstable_by_key(PAIRS_PER_ROW, |pair| (pair.cost, pair.column));
            self.pairs.truncate(start as usize + PAIRS_PER_ROW);
        }
        self.rows.push(Row { pairs: [start, self.pairs.len() as u32], column: NONE, price: 0 });
    }

    /// Solves the problem; returns the column of each row.
    pub(crate) fn solve(&mut self) -> impl Iterator<Item = Option<usize>> + '_ {
        for row in 0..self.rows.len() {
            if !self.take_nearest_free(row as u32) {
                self.augment(row as u32);
            }
        }
        self.rows.iter().map(|row| (row.column != NONE).then_some(row.column as usize))
    }

    fn pairs_of(&self, row: u32) -> std::ops::Range<usize> {
        let [start, end] = self.rows[row as usize].pairs;
        start as usize..end as usize
    }

    /// Gives a new row its nearest column if that is free, or none if none is worth its price: what [`augment`](Self::augment) would do,
    /// in a few instructions. Returns whether that was so, as it is for most rows.
    fn take_nearest_free(&mut self, row: u32) -> bool {
        let pairs = self.pairs[self.pairs_of(row)].iter();
        let nearest = pairs.map(|pair| (i64::from(pair.cost) - self.columns[pair.column as usize].price, pair.column));
        let Some((at, column)) = nearest.min().filter(|(at, _)| *at < i64::from(LIMIT)) else {
            self.rows[row as usize].price = LIMIT.into();
            return true;
        };
        let taken = &mut self.columns[column as usize].row;
        if *taken != NONE {
            return false;
        }
        *taken = row;
        let row = &mut self.rows[row as usize];
        (row.column, row.price) = (column, at);
        true
    }

    /// Finds a place for one more row: Dijkstra's shortest path over costs less prices, none of which is below 0.
    #[cold]
    fn augment(&mut self, first: u32) {
        let (mut row, mut so_far, mut looked_at) = (first, 0, 0);
        // Where the cheapest path so far ends: at a free column, or with a row that is left out.
        let (mut end, mut end_column, mut end_row) = (i64::MAX, NONE, NONE);
        loop {
            let price = self.rows[row as usize].price;
            let left_out = so_far + i64::from(LIMIT) - price;
            if left_out < end {
                (end, end_row) = (left_out, row);
            }
            let pairs = self.pairs_of(row);
            looked_at += pairs.len();
            if looked_at > PAIRS_PER_SEARCH {
                self.take_cheapest_free(first);
                end = i64::MAX;
                break;
            }
            for Pair { column: index, cost } in &self.pairs[pairs] {
                let column = &mut self.columns[*index as usize];
                let at = so_far + i64::from(*cost) - price - column.price;
                if at < end && at < column.distance {
                    if column.distance == i64::MAX {
                        self.reached.push(*index);
                    }
                    (column.distance, column.from) = (at, row);
                    self.heap.push(Reverse((at, *index)));
                }
            }
            // The nearest column that is not settled. One that was reached on two ways has an entry of the longer one, too.
            let nearest = loop {
                match self.heap.pop() {
                    Some(Reverse((at, column))) if at > self.columns[column as usize].distance => {}
                    nearest => break nearest,
                }
            };
            let Some(Reverse((at, column))) = nearest.filter(|Reverse((at, _))| *at < end) else { break };
            row = self.columns[column as usize].row;
            if row == NONE {
                (end, end_column) = (at, column);
                break;
            }
            self.settled.push(column);
            so_far = at;
        }
        if end != i64::MAX {
            self.raise_prices(first, end);
            self.exchange(first, end_column, end_row);
        }
        for column in self.reached.drain(..) {
            self.columns[column as usize].distance = i64::MAX;
        }
        self.settled.clear();
        self.heap.clear();
    }

    /// Keeps the cost of each pair at least its prices, and of those taken equal to them.
    fn raise_prices(&mut self, first: u32, end: i64) {
        self.rows[first as usize].price += end;
        for &column in &self.settled {
            let column = &mut self.columns[column as usize];
            let more = end - column.distance;
            column.price -= more;
            self.rows[column.row as usize].price += more;
        }
    }

    /// Gives each row on the path the column that was reached from it.
    fn exchange(&mut self, first: u32, end_column: u32, end_row: u32) {
        let mut column = end_column;
        if column == NONE {
            // The row that is left out had none, if it is the new one.
            column = std::mem::replace(&mut self.rows[end_row as usize].column, NONE);
        }
        while column != NONE {
            let row = self.columns[column as usize].from;
            self.columns[column as usize].row = row;
            let before = std::mem::replace(&mut self.rows[row as usize].column, column);
            if row == first {
                break;
            }
            column = before;
        }
    }

    fn take_cheapest_free(&mut self, row: u32) {
        let pairs = self.pairs[self.pairs_of(row)].iter();
        let free = pairs.filter(|pair| self.columns[pair.column as usize].row == NONE);
        if let Some(&Pair { column, .. }) = free.min_by_key(|pair| pair.cost) {
            self.rows[row as usize].column = column;
            self.columns[column as usize].row = row;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn solve(columns: usize, rows: &[Vec<(usize, f64)>]) -> Vec<Option<usize>> {
        let mut assignment = Assignment::default();
        let mut once = || -> Vec<Option<usize>> {
            assignment.begin(columns);
            for row in rows {
                row.iter().for_each(|(column, gain)| assignment.pair(*column, *gain));
                assignment.end_row();
            }
            assignment.solve().collect()
        };
        let found = once();
        assert_eq!(found, once(), "a second problem in the same buffers");
        found
    }

    fn gain(rows: &[Vec<(usize, f64)>], found: &[Option<usize>]) -> f64 {
        let one = |(row, column): (&Vec<(usize, f64)>, &Option<usize>)| {
            column.map_or(0.0, |column| row.iter().find(|pair| pair.0 == column).unwrap().1)
        };
        rows.iter().zip(found).map(one).sum()
    }

    /// The most that any assignment gains.
    fn best(rows: &[Vec<(usize, f64)>], taken: u32) -> f64 {
        let Some((row, rest)) = rows.split_first() else { return 0.0 };
        let with = row.iter().filter(|(column, _)| taken >> column & 1 == 0);
        with.map(|(column, gain)| gain + best(rest, taken | 1 << column)).fold(best(rest, taken), f64::max)
    }

    #[test]
    fn a_row_gives_way_where_the_sum_gains() {
        // The first alone would take column 0.
        assert_eq!(solve(2, &[vec![(0, 0.9), (1, 0.8)], vec![(0, 0.7)]]), [Some(1), Some(0)]);
        // Here it is better to leave one out.
        assert_eq!(solve(2, &[vec![(0, 0.2)], vec![(0, 0.9)]]), [None, Some(0)]);
        assert_eq!(solve(1, &[vec![(0, f64::NAN), (0, -1.0), (0, 0.0)], vec![]]), [None, None]);
        assert_eq!(solve(0, &[]), []);
    }

    #[test]
    fn a_thousand_rows_that_fit_everything_end_and_are_valid() {
        let rows: Vec<Vec<(usize, f64)>> = (0..1000)
            .map(|row| {
                (0..1000)
                    .map(|column| (column, 0.5 + 0.4 * f64::from((row * 31 + column * 17) as u32 % 97) / 97.0))
                    .collect()
            })
            .collect();
        let found = solve(1000, &rows);
        let mut columns: Vec<usize> = found.iter().flatten().copied().collect();
        assert!(columns.len() > 900, "{}", columns.len());
        columns.sort_unstable();
        assert!(columns.windows(2).all(|pair| pair[0] < pair[1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(39), failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn nothing_gains_more(
            gains in proptest::collection::vec(proptest::collection::vec(proptest::option::weighted(0.6, 1..1000_u32), 6), 0..7)
        ) {
            let of = |row: &Vec<Option<u32>>| {
                let pairs = row.iter().enumerate();
                pairs.filter_map(|(column, gain)| gain.map(|gain| (column, f64::from(gain) / 1000.0))).collect()
            };
            let rows: Vec<Vec<(usize, f64)>> = gains.iter().map(of).collect();
            let found = solve(6, &rows);
            let mut columns: Vec<usize> = found.iter().flatten().copied().collect();
            columns.sort_unstable();
            prop_assert!(columns.windows(2).all(|pair| pair[0] < pair[1]), "a column was given twice: {found:?}");
            prop_assert!((gain(&rows, &found) - best(&rows, 0)).abs() < 1e-4, "{found:?}");
        }
    }
}
