//! A set of small images in memory.

use super::{Dataset, Image};
use crate::{Error, Result, Tensor};

/// Images of one size with a label each, kept as bytes; a batch is normalised when it is taken.
///
/// ```
/// use neurona::data::ImageSet;
/// let classes = vec!["dark".to_string(), "light".to_string()];
/// let set = ImageSet::new(vec![0, 51, 255, 204], vec![0, 1], classes, [1, 1, 2])?;
/// let (x, y) = set.batch(&[1])?;
/// assert_eq!(x.shape().to_string(), "[1, 1, 1, 2]");
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 0.8]);
/// assert_eq!(y.to_vec::<i64>()?, [1]);
/// # Ok::<(), neurona::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageSet {
    images: Vec<u8>,
    labels: Vec<i64>,
    classes: Vec<String>,
    size: [usize; 3],
    mean: Vec<f32>,
    deviation: Vec<f32>,
}

/// A set to learn from and a set to be judged by.
#[derive(Clone, Debug)]
pub struct Split {
    /// To learn from.
    pub train: ImageSet,
    /// To be judged by.
    pub test: ImageSet,
}

impl ImageSet {
    /// A set of images `[n, c, h, w]` of size `[c, h, w]`, grey or colour, with a label for each and a name for each label.
    /// Its batches go from 0 to 1 until [`normalised`](ImageSet::normalised) says otherwise.
    ///
    /// ```
    /// use neurona::data::ImageSet;
    /// let wrong = ImageSet::new(vec![0; 7], vec![0, 0], vec!["a".to_string()], [1, 2, 2]);
    /// assert_eq!(wrong.unwrap_err().to_string(), "2 images of [1, 2, 2] need 8 bytes, not 7");
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn new(mut images: Vec<u8>, labels: Vec<i64>, classes: Vec<String>, size: [usize; 3]) -> Result<Self> {
        let need = size.iter().try_fold(labels.len(), |n, &d| n.checked_mul(d));
        if need != Some(images.len()) {
            let need = need.map_or("too many".to_string(), |n| n.to_string());
            let (count, got) = (labels.len(), images.len());
            return Err(Error::Argument(format!("{count} images of {size:?} need {need} bytes, not {got}")));
        }
        if let Some((i, label)) = labels.iter().enumerate().find(|(_, l)| !(0..classes.len() as i64).contains(l)) {
            let last = classes.len() as i64 - 1;
            return Err(Error::Argument(format!("label {label} of image {i} is not between 0 and {last}")));
        }
        let channels = size[0];
        if !matches!(channels, 1 | 3) {
            return Err(Error::Argument(format!("images have 1 channel (grey) or 3 (colour), not {channels}")));
        }
        if channels == 3 {
            channels_last(&mut images, size[1] * size[2]);
        }
        Ok(ImageSet { images, labels, classes, size, mean: vec![0.0; channels], deviation: vec![1.0; channels] })
    }

    /// The same set, whose batches have this mean taken off each channel (of pixels from 0 to 1) and are
    /// divided by this deviation.
    ///
    /// ```
    /// use neurona::data::ImageSet;
    /// let set = ImageSet::new(vec![255], vec![0], vec!["white".to_string()], [1, 1, 1])?.normalised(&[0.5], &[0.25])?;
    /// assert_eq!(set.batch(&[0])?.0.to_vec::<f32>()?, [2.0]);
    /// # Ok::<(), neurona::Error>(())
    /// ```
    pub fn normalised(mut self, mean: &[f32], deviation: &[f32]) -> Result<Self> {
        let channels = self.size[0];
        if mean.len() != channels || deviation.len() != channels {
            let problem = format!("{channels} channels need as many means and deviations, not {}", mean.len());
            return Err(Error::Argument(problem));
        }
        if let Some(d) = deviation.iter().find(|d| !(d.is_finite() && **d > 0.0)) {
            return Err(Error::Argument(format!("a deviation of {d} cannot be divided by")));
        }
        self.mean = mean.to_vec();
        self.deviation = deviation.to_vec();
        Ok(self)
    }

    /// How many images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Channels, height and width.
    pub fn size(&self) -> [usize; 3] {
        self.size
    }

    /// The names of the classes; a label is a place in this list.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Every image's label.
    pub fn labels(&self) -> &[i64] {
        &self.labels
    }

    /// The bytes of all images, `[n, h, w, c]`: channels last, as an [`Image`] has them.
    pub fn images(&self) -> &[u8] {
        &self.images
    }

    /// What is taken off each channel, and what it is divided by.
    pub fn normalisation(&self) -> (&[f32], &[f32]) {
        (&self.mean, &self.deviation)
    }

    /// The images at these places, `[n, c, h, w]` as f32, and their labels as i64.
    #[track_caller]
    pub fn batch(&self, places: &[usize]) -> Result<(Tensor, Tensor)> {
        let [channels, height, width] = self.size;
        let bytes = channels * height * width;
        let tables = self.tables();
        let mut pixels = Vec::with_capacity(places.len() * bytes);
        let mut labels = Vec::with_capacity(places.len());
        for &place in places {
            let Some(&label) = self.labels.get(place) else {
                return Err(Error::Argument(format!("there is no image {place}; the set has {}", self.len())));
            };
            labels.push(label);
            let image = &self.images[place * bytes..(place + 1) * bytes];
            for (channel, table) in tables.iter().enumerate() {
                let value = |pixel: &[u8]| table[pixel[channel] as usize];
                pixels.extend(image.chunks_exact(channels).map(value));
            }
        }
        let x = Tensor::from_vec(pixels, [places.len(), channels, height, width])?;
        Ok((x, Tensor::from_vec(labels, [places.len()])?))
    }

    /// What each byte becomes, by channel: looked up it costs nothing, and is PyTorch's value to the bit.
    fn tables(&self) -> Vec<[f32; 256]> {
        let table = |(mean, deviation)| std::array::from_fn(|byte| (byte as f32 / 255.0 - mean) / deviation);
        self.mean.iter().zip(&self.deviation).map(table).collect()
    }
}

/// Colour images `[n, 3, h, w]` become `[n, h, w, 3]`, in place: done once, so that reading an image is a copy.
fn channels_last(images: &mut [u8], plane: usize) {
    let mut planes = vec![0; 3 * plane];
    for image in images.chunks_exact_mut((3 * plane).max(1)) {
        planes.copy_from_slice(image);
        let (red, rest) = planes.split_at(plane);
        let (green, blue) = rest.split_at(plane);
        for (((pixel, r), g), b) in image.chunks_exact_mut(3).zip(red).zip(green).zip(blue) {
            pixel.copy_from_slice(&[*r, *g, *b]);
        }
    }
}

impl Dataset for ImageSet {
    fn len(&self) -> usize {
        self.labels.len()
    }
    fn classes(&self) -> &[String] {
        &self.classes
    }
    fn labels(&self) -> &[i64] {
        &self.labels
    }
    fn read(&self, index: usize, image: &mut Image) -> Result<()> {
        let [channels, height, width] = self.size;
        let bytes = channels * height * width;
        let Some(from) = index.checked_mul(bytes).and_then(|start| self.images.get(start..start + bytes)) else {
            return Err(Error::Argument(format!("there is no image {index}; the set has {}", self.len())));
        };
        image.refill([width, height, channels], |to| {
            to.copy_from_slice(from);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two images of 3 channels, 2 rows, 2 columns; bytes count up through planes.
    fn colours() -> ImageSet {
        ImageSet::new((0..24).collect(), vec![0, 0], vec!["a".to_string()], [3, 2, 2]).unwrap()
    }

    #[test]
    fn an_image_read_has_its_channels_side_by_side() {
        let mut image = Image::default();
        colours().read(1, &mut image).unwrap();
        assert_eq!((image.width(), image.height(), image.channels()), (2, 2, 3));
        assert_eq!(image.bytes(), [12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23]);
        assert!(colours().read(2, &mut image).unwrap_err().to_string().contains("no image 2"));
    }

    #[test]
    fn a_batch_has_its_channels_apart() {
        let (x, _) = colours().batch(&[1]).unwrap();
        let want: Vec<f32> = (12..24).map(|b| b as f32 / 255.0).collect();
        assert_eq!(x.to_vec::<f32>().unwrap(), want);
    }

    #[test]
    fn two_channels_are_refused() {
        let two = ImageSet::new(vec![0; 2], vec![0], vec!["a".to_string()], [2, 1, 1]);
        assert!(two.unwrap_err().to_string().contains("not 2"));
    }
}
