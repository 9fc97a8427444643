"""python -m bdrun"""

from bdrun import main

main()
