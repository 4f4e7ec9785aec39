"""Types of the transforms, for type checkers and editors: the functions' own."""

from tessera.fft.frequencies import fftfreq as fftfreq
from tessera.fft.frequencies import fftshift as fftshift
from tessera.fft.frequencies import ifftshift as ifftshift
from tessera.fft.frequencies import rfftfreq as rfftfreq
from tessera.fft.real import hfft as hfft
from tessera.fft.real import ihfft as ihfft
from tessera.fft.real import irfft as irfft
from tessera.fft.real import irfft2 as irfft2
from tessera.fft.real import irfftn as irfftn
from tessera.fft.real import rfft as rfft
from tessera.fft.real import rfft2 as rfft2
from tessera.fft.real import rfftn as rfftn
from tessera.fft.whole import fft as fft
from tessera.fft.whole import fft2 as fft2
from tessera.fft.whole import fftn as fftn
from tessera.fft.whole import ifft as ifft
from tessera.fft.whole import ifft2 as ifft2
from tessera.fft.whole import ifftn as ifftn
