//! Boxes that are turned, as in pictures from above.

/// A box turned about its centre.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OrientedBox {
    /// The centre x and y, in pixels.
    pub center: [f32; 2],
    /// The side that `angle` turns, and the side at a right angle to it, in pixels.
    pub size: [f32; 2],
    /// In radians, clockwise on the screen (from the x axis, which points right, to the y axis, which points down).
    pub angle: f32,
}

impl OrientedBox {
    /// Returns the corners, clockwise on the screen. At angle 0 the first is the bottom right one, as in `xywhr2xyxyxyxy` of
    /// ultralytics `utils/ops.py`.
    pub fn corners(&self) -> [[f32; 2]; 4] {
        let [x, y] = self.center.map(f64::from);
        let [width, height] = self.size.map(f64::from);
        let (sin, cos) = f64::from(self.angle).sin_cos();
        let (across, down) = ([width / 2.0 * cos, width / 2.0 * sin], [-height / 2.0 * sin, height / 2.0 * cos]);
        [[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]
            .map(|[a, d]| [(x + a * across[0] + d * down[0]) as f32, (y + a * across[1] + d * down[1]) as f32])
    }
}
