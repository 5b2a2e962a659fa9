"""How questions point back, in English and in Chinese: pronouns, gaps, and the words that name a property of
something and not the thing."""

from __future__ import annotations

import re

from memory.words import query_terms

WORD = re.compile(r"[A-Za-zÀ-ɏΑ-ωА-я0-9][\w'’/-]*")
NAME = re.compile(r"\b[A-ZÀ-Þ][\w'’-]*(?: [A-ZÀ-Þ][\w'’-]*)*")
CHINESE = re.compile(r"[\u3400-\u9fff]+")
_IGNORE = re.IGNORECASE

PRONOUN = re.compile(
    r"\b(it|its|itself|they|them|their|theirs|he|him|his|she|her|hers|these|those)\b"
    r"|\bit[’']?s\b(?=\s+\w+\s+\w)"
    r"|\bthis\b(?! (chat|conversation|week|month|year|morning|afternoon|evening|time|file|document|text|image)\b)"
    r"|\b(about|of|for|with|like|than|is|was|did|do|does|to|after|before|why|by|from|on) that\b"
    r"(?! (is|are|was|can|have|you|i|we)\b)"
    r"|^that\b|\bthat\s*[?.!]*$"
    r"|(?<!is )(?<!are )(?<!was )(?<!were )(?<!be )\bthere\s*[?.!]*$"
    r"|\bones\b|\b(which|what|the|that|this|other|same|\w{3,}est) one\b",
    _IGNORE,
)
IDLE_IT = re.compile(
    r"\bwhat (time|day|date) is it\b"
    r"|\bis it (true|possible|necessary|ok|okay|worth|raining|snowing|cold|hot|late|too late) ?"
    r"(that|to|for|in|outside|now|\?|$)",
    _IGNORE,
)
"""An "it" that stands for nothing."""
CLAUSE = re.compile(
    r"[.,;:!?，。；：！？]+\s*|\b(?:because|although|while)\b"
    r"|\b(?:and|but|or|so)\b(?= (?:what|who|when|where|why|how|which|is|are|was|were|do|does|did|can|if|it|its|they|"
    r"their|them|he|his|him|she|her)\b)",
    _IGNORE,
)
WHAT_ABOUT = re.compile(r"^\W*((and|but|so|then|ok|okay)\W+)*(what|how) about\b", _IGNORE)
_END = r"\s*[?.!]*$"
_BE = r"(is|are|was|were|be|been)"
_JUDGED = (
    r"(main|major|important|key|common|typical|popular|famous|known|best|good|great|different|other|similar|big|"
    r"possible|interesting|influential|notable)"
)
SUPERLATIVE = re.compile(
    rf"\b(the (\w{{3,}}est|best|worst|(most|least) \w+)( (and|ever|in|on|to|for|of all|by|selling|known)\b|{_END})|"
    rf"the (first|last){_END})",
    _IGNORE,
)
"""A superlative without a noun: "which is the largest?"."""
RANKED = re.compile(rf"\b(which|what|who)\b( \w+){{1,4}} {_BE} the ", _IGNORE)
DEFINITE = re.compile(
    rf"\b([Tt]he|other|any)( {_JUDGED})? ([a-z]+)"
    rf"( {_BE}? ?\b(work|differ|\w+ed|\w+en|sold|held|made|found|built|free|close|open|unique|work|go|look))?{_END}"
)
"""A thing that is known from before, at the end of the question: "how reliable is the test?"."""
UNIQUE = re.compile(
    r"\bthe (sun|moon|sky|earth|world|sea|weather|internet|universe|future|past|present|morning|afternoon|evening|"
    r"night|summer|winter|autumn|fall|spring|news|time|day|date|week|weekend|piano|guitar|violin|dark|rain|cold|police|gym|"
    r"house|fridge|kitchen|car|dishes|bathroom|garden)\b",
    _IGNORE,
)
"""Things of which there is one for everybody, or one in every home."""
_JUDGED_KIND = re.compile(
    rf"^\W*(what|who|which|where) {_BE} (an? |some |some of )?(the )?(most )?{_JUDGED} ((?!of\b)\w+ ){{0,2}}\w+{_END}",
    _IGNORE,
)
"""The important or popular ones of something that is not named: "what are popular hiking trails?"."""
_PREDICATE = re.compile(
    rf"^\W*(what|which) (\w+ ){{1,2}}{_BE} ({_JUDGED}|available|traditional|recommended|there){_END}", _IGNORE
)
"""The same, the judgement last: "what cakes are traditional?"."""
_ANY = re.compile(rf"^\W*{_BE} there any (\w+ ){{0,2}}\w+{_END}", _IGNORE)
_OTHER = re.compile(
    r"\b((what|which|any|some|are|were|is) other|(what|who|anything|anyone|where) else|nearby)\b", _IGNORE
)
_WITHOUT_NOUN = re.compile(
    r"\b(any|some|others?) (related|like|in|for|that|which|near|with|from)\b"
    rf"|\b(what|which) (kind|type|sort|variety|brand|model|size|version|colou?r)s? "
    rf"({_BE}|should|would|do|does|can|did|have|has)\b"
    r"|^\W*which (is|are|was|were)\b(?! the )",
    _IGNORE,
)
"""Where the noun is left out: "which is younger?", "are there any near the station?"."""
_ONE_SIDED = re.compile(
    r"\b(compare|differ|different|similar|better|worse|cheaper|faster|slower|safer|older|newer|bigger|smaller|"
    rf"easier|harder|helps?){_END}",
    _IGNORE,
)
"""A comparison with something that is not named."""
_OWNERLESS = re.compile(
    r"\b(impact|effect|influence|relationship|relation|connection|role|implication|contribution|difference|similarity|"
    r"reaction|objection|alternative)s? (for|on|to|with|in)\b(?!.*\bof\b)",
    _IGNORE,
)
"""A relation of which one end is left out: "what is the impact on biology?"."""
_CIRCUMSTANCE = re.compile(
    r"^\W*((and|but|so|then|ok|okay)\W+)*(what|how) about (in|on|at|with|without|from|by|during)\b", _IGNORE
)
CHINESE_GAP = re.compile(
    r"^(那|那么|还有|另外|然后)[^，。]{0,6}(呢)?[?？]?$|^[^，。]{1,8}呢[?？]?$"
    r"|^(为什么|怎么会|怎么样|多少钱|什么时候|在哪里?|是谁)(呢|啊)?[?？]?$"
)
GAPS = (
    _JUDGED_KIND,
    _PREDICATE,
    _ANY,
    _OTHER,
    _WITHOUT_NOUN,
    _ONE_SIDED,
    _OWNERLESS,
    _CIRCUMSTANCE,
    CHINESE_GAP,
)
INTRODUCES = re.compile(
    r"^\W*((please|can you|could you) )?(tell me( more)? about|describe|explain|"
    r"(what|who|what's|who's)( is| are| was| were|)|introduce"
    r"|what do you know about)\b|介绍|是什么|什么是|是谁",
    _IGNORE,
)
ASKS = re.compile(
    r"[?？]|^\W*(what|who|when|where|why|how|which|tell|describe|explain|show|give|list|are|is|do|does|did|can)\b",
    _IGNORE,
)

CHINESE_PRONOUN = re.compile(r"它们?|他们?|她们?|这个(?!月|星期|礼拜|周)|那个|这些|那些|其中|那里|那儿|这样|那样")
CHINESE_CUT = re.compile(
    r"多少钱?|多[大长久高远重]|[一每](?:晚|天|个月?|年|月|周|次|份|张|人|台|公斤|斤)"
    r"|什么|怎么样?|为什么|多少|哪[里儿些个]?|谁|几|吗|呢|吧|啊|的|了|是|在|有|和|与|或|请|给|讲|介绍一下|介绍|一下|告诉|我们?|你们?|您"
    r"|它们?|他们?|她们?|这[个些样]?|那[个些样么里儿]?|其中|怎样|如何|会|能|可以|要|应该|主要|原因|特点|区别|作用|影响|历史|方法|种类|价格|好处|坏处|优点|缺点"
)

RELATIONAL = frozenset(
    query_terms(
        """main major important key common typical popular famous known best better good bad worst worse large largest
        big biggest small great greatest different difference differences similar similarity similarities
        other others many much type types kind kinds form forms sort sorts part parts element elements
        example examples cause causes caused reason reasons effect effects side result results finding
        findings outcome outcomes impact impacts influence consequence consequences implication implications
        symptom symptoms sign signs treatment treatments treat cure cured cost costs price prices use uses
        used using advantage advantages disadvantage disadvantages benefit benefits pros cons risk risks
        danger dangers dangerous safe safety feature features characteristic characteristics property
        properties member members character characters theme themes author authors artist artists founder
        founding origin origins history creation invention invented invent discovered discover role roles
        relationship related relate compare compared comparison mean meaning definition term name names work
        works working happen happened start started begin began end ended win won award awards live lives
        last long time times year years day days old people person way ways method methods problem problems
        solution solutions challenge challenges event events level levels number amount size weight weigh
        height age color colour describe explain tell discuss list give show help know think say said make
        makes made get take took go come came need want like look find found see possible likely available
        required recommended exist existed become became change changed develop developed development occur
        evolve created create built build open opened close closed purpose purposes function functions goal
        goals idea ideas step steps process affect affects influenced include included contain special
        interesting interest fact facts info information detail details today currently now modern original
        originally short long-term first second third next previous later recent new early ever really
        actually usually generally typically often exactly survive survived released release published
        publish received receive review reviews played play study studies test tests model models options
        option source sources competitor competitors alternative alternatives product products service
        services place places""",
        limit=600,
    )
)
"""Words that ask about something without naming it."""
