//! A table of text: the first column to the left, the others to the right.

use std::fmt;

/// Rows of cells under a header.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with nothing but a header.
    pub fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            rows: vec![header.into_iter().map(Into::into).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for (index, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            writeln!(formatter, "{}", line.trim_end())?;
            if index == 0 {
                let gaps = 2 * columns.saturating_sub(1);
                writeln!(
                    formatter,
                    "{}",
                    "─".repeat(widths.iter().sum::<usize>() + gaps)
                )?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["", "bare", "é"]);
        table.row(["1 MiB", "2.29", "1"]);
        assert_eq!(
            table.to_string(),
            "       bare  é\n──────────────\n1 MiB  2.29  1\n"
        );
    }
}
